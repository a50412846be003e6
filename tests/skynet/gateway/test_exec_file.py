"""The house's file: whatever is in it, it is understood or refuses everything."""

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.gateway.exec_file import MAX_BYTES, ExecFile
from skynet_protocol.errors import RequestError
from skynet_protocol.exec_approvals import ExecApprovalsFileParams


async def nothing() -> None:
    pass


def names_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def write(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({"version": 1, **fields}))


async def test_an_agent_comes_before_all_agents_and_these_before_the_default(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    write(
        path,
        defaults={"security": "full", "ask": "off", "askFallback": "full"},
        agents={
            "*": {"ask": "on-miss", "allowlist": [{"pattern": "/b"}]},
            "main": {"security": "allowlist", "allowlist": [{"pattern": "/a"}]},
        },
    )
    file = ExecFile(path)
    main, other = await file.rules("main"), await file.rules("other")
    assert (main.security, main.ask, main.ask_fallback) == ("allowlist", "on-miss", "full")
    assert (other.security, other.ask, other.ask_fallback) == ("full", "on-miss", "full")
    assert [each.pattern for each in main.allowlist] == ["/a", "/b"]
    assert [each.pattern for each in (await file.rules("*")).allowlist] == ["/b"]


async def test_a_change_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    file = ExecFile(path)
    assert (await file.rules("main")).security == ""
    for word in ("deny", "full"):
        write(path, defaults={"security": word})
        assert (await file.rules("main")).security == word
    path.unlink()
    assert (await file.rules("main")).security == ""
    snapshot = await file.replace(ExecApprovalsFileParams(version=1), None, before=nothing)
    assert snapshot.exists and not (await file.rules("main")).broken


async def test_what_another_version_wrote_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    entry = {"pattern": "/a", "later": 1}
    write(path, later=1, socket={"path": "x", "later": 1}, agents={"main": {"later": 1, "allowlist": [entry]}})
    rules = await ExecFile(path).rules("main")
    assert not rules.broken and [each.pattern for each in rules.allowlist] == ["/a"]


@given(
    st.binary(max_size=60)
    | st.dictionaries(
        st.sampled_from(["version", "defaults", "agents", "socket"]),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(
                    st.sampled_from(["main", "*", "allowlist", "pattern", "security", "ask"]), inner, max_size=3
                )
            ),
            max_leaves=8,
        ),
    ).map(lambda value: json.dumps({"version": 1} | value).encode())
)
def test_any_bytes_are_rules_or_refuse_everything(raw: bytes) -> None:
    async def look() -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "f.json"
            path.write_bytes(raw)
            rules = await ExecFile(path).rules("main")
            snapshot = await ExecFile(path).snapshot()
            assert rules.broken or snapshot.file.version == 1
            assert rules.security in ("", "deny", "allowlist", "full") or rules.broken

    asyncio.run(look())


async def test_what_the_disk_refuses_is_told(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.mkdir()
    file = ExecFile(path)
    assert (await file.rules("main")).broken
    with pytest.raises(RequestError, match="Is a directory"):
        await file.snapshot()
    with pytest.raises(RequestError, match="Is a directory"):
        await file.replace(ExecApprovalsFileParams(version=1), None, before=nothing)
    path.rmdir()
    path.write_bytes(b" " * (MAX_BYTES + 1))
    assert (await file.rules("main")).broken
    with pytest.raises(RequestError, match="is longer than 1000000 bytes"):
        await file.snapshot()


@pytest.mark.parametrize("steps", range(0, 40, 3))
async def test_a_change_that_is_given_up_leaves_one_of_the_two(tmp_path: Path, steps: int) -> None:
    path = tmp_path / "f.json"
    file = ExecFile(path)
    await file.replace(ExecApprovalsFileParams(version=1), None, before=nothing)
    before = path.read_bytes()
    base = (await file.snapshot()).hash
    task = asyncio.ensure_future(file.replace(ExecApprovalsFileParams(version=1, agents={}), base, before=nothing))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    base = (await file.snapshot()).hash
    assert path.read_bytes() in (before, b'{\n  "version": 1,\n  "agents": {}\n}\n')
    again = await file.replace(ExecApprovalsFileParams(version=1), base, before=nothing)
    assert again.file.version == 1
    assert names_in(tmp_path) == ["f.json"]
