"""Stored tokens: one file a login, private, whole, and shared by processes."""

import asyncio
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.auth.tokens import StoredTokens, TokenStore, is_token
from skynet_memory.secrets import Secret

TOKENS = StoredTokens(
    access=Secret("access-1"),
    refresh=Secret("refresh-1"),
    expires_at_ms=1_800_000_000_000,
    issuer="https://chat.qwen.ai",
    base_url="https://portal.qwen.ai/v1",
)


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "state" / "credentials")


def files(store: TokenStore) -> list[str]:
    return sorted(file.name for file in store.directory.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_is_read_again(store: TokenStore) -> None:
    assert store.read("qwen") is None
    store.write("qwen", TOKENS)
    assert store.read("qwen") == TokenStore(store.directory).read("qwen") == TOKENS
    assert store.read("copilot") is None
    store.write("copilot", StoredTokens(access=Secret("gho")))
    assert store.read("copilot") == StoredTokens(access=Secret("gho"))


def test_others_see_neither_file_nor_directory(store: TokenStore) -> None:
    store.directory.mkdir(parents=True, mode=0o755)
    store.write("qwen", TOKENS)
    assert mode(store.directory) == 0o700
    assert mode(store.path("qwen")) == 0o600
    assert files(store) == ["qwen.json"]
    fresh = TokenStore(store.directory.parent.parent / "new" / "credentials")
    fresh.write("qwen", TOKENS)
    assert mode(fresh.directory) == mode(fresh.directory.parent) == 0o700


def test_a_login_elsewhere_is_noticed_at_once(store: TokenStore) -> None:
    other = TokenStore(store.directory)
    store.write("qwen", TOKENS)
    assert other.read("qwen") is other.read("qwen")
    for number in range(3):
        newer = StoredTokens(access=Secret(f"access-{number}"))  # of the same length
        store.write("qwen", newer)
        assert other.read("qwen") == newer
    store.path("qwen").unlink()
    assert other.read("qwen") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"accessToken":""}',
        b'{"accessToken":"a b"}',
        b'{"accessToken":"a\\r\\nX-Evil: 1"}',
        b'{"accessToken":"secret-a","refreshToken":"secret \xc3\xa9"}',
        b'{"accessToken":"secret-a","expiresAtMs":"soon"}',
        b'{"accessToken":"secret-a"}' + b" " * 70_000,
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_named_and_not_shown(store: TokenStore, content: bytes) -> None:
    store.write("qwen", TOKENS)
    store.path("qwen").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"qwen\.json holds no tokens; log in again with: skynet providers login qwen$"
    ) as caught:
        store.read("qwen")
    assert "secret" not in str(caught.value)
    store.write("qwen", TOKENS)
    assert store.read("qwen") == TOKENS


@given(data=st.binary(max_size=200))
def test_any_bytes_are_tokens_or_a_damaged_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    store = TokenStore(tmp_path_factory.mktemp("credentials"))
    store.path("x").write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.json holds no tokens"):
        store.read("x")


texts = st.text() | st.integers() | st.none()


@given(
    access=texts,
    refresh=texts,
    expires=st.integers() | st.text() | st.none(),
    issuer=texts,
    more=st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)
def test_any_object_is_tokens_that_can_be_sent_or_a_damaged_file(
    tmp_path_factory: pytest.TempPathFactory,
    access: object,
    refresh: object,
    expires: object,
    issuer: object,
    more: object,
) -> None:
    store = TokenStore(tmp_path_factory.mktemp("credentials"))
    fields = {"accessToken": access, "refreshToken": refresh, "expiresAtMs": expires, "issuer": issuer, "more": more}
    try:
        store.path("x").write_bytes(msgspec.json.encode(fields))
    except UnicodeEncodeError:
        return
    try:
        tokens = store.read("x")
    except ValueError as exc:
        assert "x.json" in str(exc)
        return
    assert tokens is not None
    assert is_token(tokens.access.reveal())
    assert not tokens.refresh or is_token(tokens.refresh.reveal())


@given(
    access=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1),
    expires=st.none() | st.integers(0, 2**53),
)
def test_any_tokens_survive_the_file(
    tmp_path_factory: pytest.TempPathFactory, access: str, expires: int | None
) -> None:
    store = TokenStore(tmp_path_factory.mktemp("credentials"))
    tokens = StoredTokens(access=Secret(access), expires_at_ms=expires)
    store.write("x", tokens)
    assert TokenStore(store.directory).read("x") == tokens


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "A", "x" * 65, "a\n", ".hidden"])
def test_names_that_are_none(store: TokenStore, name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a login"):
        store.path(name)


def test_a_write_that_fails_leaves_what_was_there(store: TokenStore) -> None:
    store.write("qwen", TOKENS)
    store.path("qwen").rename(store.directory / "kept.json")
    store.path("qwen").mkdir()  # cannot be replaced by a file
    with pytest.raises(OSError):
        store.write("qwen", TOKENS)
    assert files(store) == ["kept.json", "qwen.json"]


def test_no_text_shows_a_token() -> None:
    assert "access-1" not in f"{TOKENS!r} {TOKENS}" and "refresh-1" not in f"{TOKENS!r} {TOKENS}"


async def test_one_holds_the_lock(store: TokenStore) -> None:
    order: list[str] = []

    async def hold(name: str, until: asyncio.Event) -> None:
        async with store.lock("qwen"):
            order.append(f"{name} has it")
            entered.set()
            await until.wait()
            order.append(f"{name} leaves")

    first, second, entered = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(40), asyncio.TaskGroup() as group:
        group.create_task(hold("a", first))
        await entered.wait()
        group.create_task(hold("b", second))
        async with TokenStore(store.directory).lock("copilot"):  # another's lock is free
            pass
        waits = group.create_task(hold("c", second))
        await asyncio.sleep(0)
        waits.cancel()
        first.set()
        second.set()
    assert order == ["a has it", "a leaves", "b has it", "b leaves"]
    async with asyncio.timeout(40), store.lock("qwen"):
        pass


ADD = """
import asyncio, sys
from pathlib import Path
from skynet_agent.auth.tokens import StoredTokens, TokenStore
from skynet_memory.secrets import Secret

async def main():
    store = TokenStore(Path(sys.argv[1]))
    for _ in range(20):
        async with store.lock("count"):
            tokens = store.read("count")
            count = int(tokens.access.reveal()) if tokens else 0
            store.write("count", StoredTokens(access=Secret(str(count + 1))))

asyncio.run(main())
"""


def test_processes_lose_nothing_to_each_other(store: TokenStore) -> None:
    command = [sys.executable, "-c", ADD, str(store.directory)]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    tokens = store.read("count")
    assert tokens is not None and tokens.access.reveal() == "60"
