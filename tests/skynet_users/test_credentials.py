import asyncio
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId
from skynet_memory.secrets import Secret
from skynet_users.credentials import Authenticated, CredentialStore
from skynet_users.errors import UnknownUser
from skynet_users.people import User, UserChanges, UserStore


async def who(store: Database, token: str) -> User | None:
    authenticated = await CredentialStore(store).lookup(token)
    return None if authenticated is None else authenticated.user


class TestTokens:
    async def test_create_and_lookup(self, store: Database, ada: User, ben: User) -> None:
        credentials = CredentialStore(store)
        created = await credentials.create_token(ada.id, "laptop")
        other = await credentials.create_token(ben.id, "laptop")
        token = created.token.reveal()
        assert token.startswith("sk-sky-")
        assert len(token) > 40
        assert await who(store, token) == ada
        assert await who(store, other.token.reveal()) == ben
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
        assert await who(store, created.token.reveal()) == ada
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
        assert await who(store, created.token.reveal()) == ada
        [laptop] = await credentials.tokens(ada.id)
        assert laptop.last_used_at_ms is None

    async def test_a_removed_person_has_none(self, store: Database, ada: User) -> None:
        credentials = CredentialStore(store)
        created = await credentials.create_token(ada.id, "laptop")
        await UserStore(store).add("Eve", Role.ADMIN)
        await UserStore(store).remove(ada.id)
        assert await credentials.lookup(created.token.reveal()) is None


class TestLimitedTokens:
    async def test_scopes(self, store: Database, ada: User) -> None:
        credentials = CredentialStore(store)
        full = await credentials.create_token(ada.id, "laptop")
        some = await credentials.create_token(ada.id, "lamp", scopes=["operator.read", "operator.read"])
        for created, scopes in ((full, None), (some, frozenset({"operator.read"}))):
            found = await credentials.lookup(created.token.reveal())
            assert found == Authenticated(user=ada, credential_id=created.id, scopes=scopes, expires_at_ms=None)
        assert [token.scopes for token in await credentials.tokens(ada.id)] == [None, frozenset({"operator.read"})]

    async def test_expiry(self, store: Database, ada: User) -> None:
        credentials = CredentialStore(store)
        created = await credentials.create_token(ada.id, "lamp", expires_at_ms=1000)
        found = await credentials.lookup(created.token.reveal(), 999)
        assert found is not None
        assert found.expires_at_ms == 1000
        assert await credentials.lookup(created.token.reveal(), 1000) is None
        assert await credentials.lookup(created.token.reveal()) is None
        [token] = await credentials.tokens(ada.id)
        assert token.expires_at_ms == 1000

    async def test_only_a_person_has_one(self, store: Database, ada: User) -> None:
        await store.write(lambda tx: tx.execute("UPDATE users SET role = 'user', kind = 'group'"))
        for owner in (ada.id, UserId("nobody")):
            with pytest.raises(UnknownUser):
                await CredentialStore(store).create_token(owner, "laptop")


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

    async def test_a_disabled_person_has_none(self, store: Database, ben: User) -> None:
        credentials, users = CredentialStore(store), UserStore(store)
        await credentials.set_password(ben.id, Secret("pw"))
        await users.set(ben.id, UserChanges(disabled=True))
        assert not await credentials.check_password(ben.id, "pw")
        await users.set(ben.id, UserChanges(disabled=False))
        assert await credentials.check_password(ben.id, "pw")

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

    async def test_many_at_once_are_hashed_one_by_one(self, store: Database, ada: User) -> None:
        """Each takes 64 MiB and a processor: one person could take all of both."""
        credentials, counting = CredentialStore(store), Counting()
        asyncio.get_running_loop().set_default_executor(counting)
        await credentials.set_password(ada.id, Secret("pw"))
        tries = [credentials.check_password(ada.id, text) for text in ("no", "pw", "no", "pw")]
        assert await asyncio.gather(*tries) == [False, True, False, True]
        assert counting.most == 1


class Counting(ThreadPoolExecutor):
    """Knows how much was asked of it at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._now = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._now += 1
        self.most = max(self.most, self._now)
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: Future[Any]) -> None:
        self._now -= 1


def test_argon2_is_not_imported_at_start() -> None:
    script = "import sys, skynet_users.credentials, skynet_users.devices; print('argon2' in sys.modules)"
    root = Path(__file__).parents[2]
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True, cwd=root)
    assert answer.stdout == "False\n"
