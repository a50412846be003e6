import subprocess
import sys
from pathlib import Path

from argon2 import PasswordHasher

from skynet_memory.database import Database
from skynet_memory.secrets import Secret
from skynet_users.credentials import CredentialStore
from skynet_users.people import User, UserStore


class TestTokens:
    async def test_create_and_lookup(self, store: Database, ada: User, ben: User) -> None:
        credentials = CredentialStore(store)
        created = await credentials.create_token(ada.id, "laptop")
        other = await credentials.create_token(ben.id, "laptop")
        token = created.token.reveal()
        assert token.startswith("sk-sky-")
        assert len(token) > 40
        assert await credentials.lookup(token) == ada
        assert await credentials.lookup(other.token.reveal()) == ben
        for wrong in ("", "sk-sky-", token[:-1], token + "x", token.upper(), token[7:], "sk-sky-\udc80"):
            assert await credentials.lookup(wrong) is None, wrong

    async def test_the_token_itself_is_not_stored(self, store: Database, ada: User) -> None:
        created = await CredentialStore(store).create_token(ada.id, "laptop")
        assert created.token.reveal() not in repr(created)
        copy = store.path.with_name("copy.db")
        await store.backup(copy)
        assert created.token.reveal().encode() not in copy.read_bytes()

    async def test_list_and_remove(self, store: Database, ada: User, ben: User) -> None:
        credentials = CredentialStore(store)
        created = await credentials.create_token(ada.id, "laptop")
        await credentials.create_token(ada.id, "phone")
        [laptop, phone] = await credentials.tokens(ada.id)
        assert (laptop.id, laptop.name, laptop.last_used_at_ms) == (created.id, "laptop", None)
        assert phone.name == "phone"
        assert await credentials.tokens(ben.id) == []
        assert not await credentials.remove_token(ben.id, created.id)
        assert await credentials.lookup(created.token.reveal()) == ada
        [laptop, phone] = await credentials.tokens(ada.id)
        assert laptop.last_used_at_ms is not None
        assert phone.last_used_at_ms is None
        assert await credentials.remove_token(ada.id, created.id)
        assert await credentials.lookup(created.token.reveal()) is None

    async def test_use_is_noted_at_most_once_a_minute(self, store: Database, ada: User) -> None:
        credentials = CredentialStore(store)
        created = await credentials.create_token(ada.id, "laptop")
        await credentials.lookup(created.token.reveal())
        [before] = await credentials.tokens(ada.id)
        for _ in range(5):
            await credentials.lookup(created.token.reveal())
        assert await credentials.tokens(ada.id) == [before]

    async def test_a_token_is_good_although_its_use_cannot_be_noted(self, store: Database, ada: User) -> None:
        credentials = CredentialStore(store)
        created = await credentials.create_token(ada.id, "laptop")
        await store.write(lambda tx: tx.execute("PRAGMA query_only = 1"))
        assert await credentials.lookup(created.token.reveal()) == ada
        [laptop] = await credentials.tokens(ada.id)
        assert laptop.last_used_at_ms is None

    async def test_a_removed_person_has_none(self, store: Database, ada: User) -> None:
        credentials = CredentialStore(store)
        created = await credentials.create_token(ada.id, "laptop")
        await UserStore(store).remove(ada.id)
        assert await credentials.lookup(created.token.reveal()) is None


class TestPasswords:
    async def test_set_and_check(self, store: Database, ada: User, ben: User) -> None:
        credentials = CredentialStore(store)
        assert not await credentials.check_password(ada.id, "")
        await credentials.set_password(ada.id, Secret("correct horse"))
        assert await credentials.check_password(ada.id, "correct horse")
        assert not await credentials.check_password(ada.id, "correct horses")
        assert not await credentials.check_password(ada.id, "\udc80")
        assert not await credentials.check_password(ben.id, "correct horse")
        await credentials.set_password(ada.id, Secret("battery staple"))
        assert not await credentials.check_password(ada.id, "correct horse")
        assert await credentials.check_password(ada.id, "battery staple")

    async def test_it_is_stored_as_argon2id(self, store: Database, ada: User) -> None:
        await CredentialStore(store).set_password(ada.id, Secret("pw"))
        row = await store.fetchone("SELECT hash FROM credentials")
        assert row is not None
        assert row["hash"].startswith("$argon2id$")

    async def test_a_weak_hash_is_renewed(self, store: Database, ada: User) -> None:
        credentials = CredentialStore(store)
        await credentials.set_password(ada.id, Secret("pw"))
        weak = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("pw")
        await store.write(lambda tx: tx.execute("UPDATE credentials SET hash = ?", (weak,)))
        assert not await credentials.check_password(ada.id, "no")
        assert await credentials.check_password(ada.id, "pw")
        row = await store.fetchone("SELECT hash FROM credentials")
        assert row is not None
        assert row["hash"] != weak
        assert await credentials.check_password(ada.id, "pw")


def test_argon2_is_not_imported_at_start() -> None:
    script = "import sys, skynet_users.credentials, skynet_users.devices; print('argon2' in sys.modules)"
    root = Path(__file__).parents[2]
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True, cwd=root)
    assert answer.stdout == "False\n"
