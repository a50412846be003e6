"""``exec.approvals.get``."""

import hashlib
import json

import pytest

from tests.skynet.methods import shapes
from tests.skynet.methods.world import RefusedError, World


async def test_a_missing_file(world: World) -> None:
    result = await world.call(world.admin, "exec.approvals.get", {})
    shapes.check(shapes.EXEC_APPROVALS, result)
    assert result == {
        "path": str(world.home / "exec-approvals.json"),
        "exists": False,
        "hash": hashlib.sha256(b"").hexdigest(),
        "file": {"version": 1, "defaults": {}, "agents": {}},
    }


async def test_a_file_is_shown_without_the_sockets_token(world: World) -> None:
    file = {
        "version": 1,
        "socket": {"path": "/run/x.sock", "token": "very-secret"},
        "defaults": {"security": "allowlist", "ask": "on-miss"},
        "agents": {"main": {"allowlist": [{"pattern": "/usr/bin/git", "lastUsedAt": 5}], "askFallback": "deny"}},
    }
    raw = json.dumps(file).encode()
    (world.home / "exec-approvals.json").write_bytes(raw)
    result = await world.call(world.admin, "exec.approvals.get")
    shapes.check(shapes.EXEC_APPROVALS, result)
    assert result["exists"] is True and result["hash"] == hashlib.sha256(raw).hexdigest()
    assert result["file"] == {**file, "socket": {"path": "/run/x.sock"}}


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"version":2}', b"\xff", b"[" * 100_000])
async def test_a_broken_file_reads_as_empty(world: World, raw: bytes) -> None:
    (world.home / "exec-approvals.json").write_bytes(raw)
    result = await world.call(world.admin, "exec.approvals.get")
    shapes.check(shapes.EXEC_APPROVALS, result)
    assert result["exists"] is True and result["file"] == {"version": 1, "defaults": {}, "agents": {}}


async def test_only_admins_see_it(world: World) -> None:
    with pytest.raises(RefusedError, match=r"^missing scope: operator\.admin$"):
        await world.call(world.user, "exec.approvals.get")
