"""``exec.approvals.*`` and ``exec.approval.*``."""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.gateway.dispatch import collect
from skynet.gateway.exec_file import ExecFile, merge
from skynet.methods.exec_approvals import ExecApprovalMethods
from skynet_memory.ids import Role, UserId
from skynet_protocol.frames import Request
from tests.skynet.methods import shapes
from tests.skynet.methods.people import open_people
from tests.skynet.methods.world import FakeConnection, RefusedError, World, caller_of


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


# exec.approvals.set

FILE = {
    "version": 1,
    "socket": {"path": "/run/x.sock", "token": "very-secret", "later": 1},
    "defaults": {"security": "allowlist", "later": 2},
    "agents": {
        "main": {
            "allowlist": [{"id": "1", "pattern": "/usr/bin/git", "later": 3}, {"pattern": "/usr/bin/rg", "later": 4}],
            "later": 5,
        },
        "gone": {"ask": "off", "later": 6},
    },
    "later": {"7": [8]},
}


def path_of(world: World) -> Path:
    return world.home / "exec-approvals.json"


async def test_a_first_file_is_written_for_the_gateway_alone(world: World) -> None:
    result = await world.call(world.admin, "exec.approvals.set", {"file": {"version": 1}})
    shapes.check(shapes.EXEC_APPROVALS, result)
    assert result["exists"] is True and result["file"] == {"version": 1, "defaults": {}, "agents": {}}
    assert path_of(world).stat().st_mode & 0o777 == 0o600
    assert json.loads(path_of(world).read_bytes()) == {"version": 1}
    assert await world.call(world.admin, "exec.approvals.get") == result
    assert world.recorded == [("config.changed", world.admin.user_id, "exec-approvals.json")]


async def test_what_the_client_does_not_know_is_kept(world: World) -> None:
    path_of(world).write_text(json.dumps(FILE))
    shown = await world.call(world.admin, "exec.approvals.get")
    assert "very-secret" not in json.dumps(shown) and "later" not in json.dumps(shown)
    file = shown["file"]
    del file["agents"]["gone"]
    file["agents"]["*"] = {"allowlist": [{"pattern": "/usr/bin/jq"}]}
    file["agents"]["main"]["ask"] = "always"
    result = await world.call(world.admin, "exec.approvals.set", {"file": file, "baseHash": shown["hash"]})
    assert "very-secret" not in json.dumps(result)
    written = json.loads(path_of(world).read_bytes())
    entries = written["agents"]["main"]["allowlist"] + written["agents"]["*"]["allowlist"]
    assert all(entry.pop("id") for entry in entries), "each has an id by which it is known again"
    assert written == {
        "version": 1,
        "socket": FILE["socket"],
        "defaults": FILE["defaults"],
        "agents": {
            "main": {
                "ask": "always",
                "allowlist": [{"pattern": "/usr/bin/git", "later": 3}, {"pattern": "/usr/bin/rg", "later": 4}],
                "later": 5,
            },
            "*": {"allowlist": [{"pattern": "/usr/bin/jq"}]},
        },
        "later": {"7": [8]},
    }


async def test_a_client_that_leaves_the_socket_out_loses_nothing(world: World) -> None:
    path_of(world).write_text(json.dumps(FILE))
    base = hashlib.sha256(path_of(world).read_bytes()).hexdigest()
    await world.call(world.admin, "exec.approvals.set", {"file": {"version": 1}, "baseHash": base})
    assert json.loads(path_of(world).read_bytes()) == {
        "version": 1,
        "socket": FILE["socket"],
        "later": {"7": [8]},
    }


async def test_what_changed_meanwhile_is_not_overwritten(world: World) -> None:
    new = {"file": {"version": 1}}
    first = await world.call(world.admin, "exec.approvals.set", new)
    with pytest.raises(
        RefusedError, match=r"^exec approvals base hash required; re-run exec\.approvals\.get and retry$"
    ):
        await world.call(world.admin, "exec.approvals.set", new)
    await world.call(world.admin, "exec.approvals.set", {**new, "baseHash": first["hash"]})
    path_of(world).write_text('{"version":1,"defaults":{"security":"deny"}}')
    with pytest.raises(
        RefusedError, match=r"^exec approvals changed since last load; re-run exec\.approvals\.get and retry$"
    ):
        await world.call(world.admin, "exec.approvals.set", {**new, "baseHash": first["hash"]})
    assert json.loads(path_of(world).read_bytes())["defaults"] == {"security": "deny"}
    path_of(world).unlink()
    with pytest.raises(RefusedError, match="changed since last load"):
        await world.call(world.admin, "exec.approvals.set", {**new, "baseHash": first["hash"]})
    assert len(world.recorded) == 2, "what was refused is not recorded as done"


@pytest.mark.parametrize(
    ("file", "where"),
    [
        ({"version": 2}, "at /file/version: must be equal to constant"),
        ({}, "at /file: must have required property 'version'"),
        ({"version": 1, "more": 1}, "at /file: unexpected property 'more'"),
        (
            {"version": 1, "defaults": {"security": "fulll"}},
            "at /file/defaults/security: must be one of deny, allowlist, full",
        ),
        (
            {"version": 1, "agents": {"main": {"ask": "sometimes"}}},
            "at /file/agents/main/ask: must be one of off, on-miss, always",
        ),
        (
            {"version": 1, "agents": {"main": {"askFallback": "ask"}}},
            "at /file/agents/main/askFallback: must be one of deny, allowlist, full",
        ),
        ({"version": 1, "agents": {"main": {"allowlist": [{"id": "x"}]}}}, "must have required property 'pattern'"),
        (
            {"version": 1, "agents": {"main": {"allowlist": [{"pattern": "/a"}, {"pattern": " "}]}}},
            "at /file/agents/main/allowlist/1/pattern: must NOT have fewer than 1 characters",
        ),
        (
            {"version": 1, "agents": {"main": {"allowlist": [{"pattern": "[git push]"}]}}},
            "at /file/agents/main/allowlist/0/pattern: must be a JSON array of words",
        ),
    ],
)
async def test_a_file_that_makes_no_sense_is_refused_with_the_field(world: World, file: object, where: str) -> None:
    with pytest.raises(RefusedError) as refused:
        await world.call(world.admin, "exec.approvals.set", {"file": file})
    assert str(refused.value).startswith("invalid exec.approvals.set params: ") and where in str(refused.value)
    assert not path_of(world).exists() and world.recorded == []


async def test_a_disk_that_takes_nothing_leaves_the_file_as_it_was(world: World) -> None:
    first = await world.call(world.admin, "exec.approvals.set", {"file": {"version": 1}})
    many = [{"pattern": f"/usr/bin/{number}{'x' * 4000}"} for number in range(300)]
    file = {"version": 1, "agents": {"main": {"allowlist": many}}}
    with pytest.raises(RefusedError, match=r"file: is .* bytes, the limit is 1000000"):
        await world.call(world.admin, "exec.approvals.set", {"file": file, "baseHash": first["hash"]})
    assert await world.call(world.admin, "exec.approvals.get") == first
    assert [each.name for each in world.home.iterdir() if "exec-approvals" in each.name] == ["exec-approvals.json"]


async def test_two_that_set_at_once_do_not_both_win(world: World) -> None:
    first = await world.call(world.admin, "exec.approvals.set", {"file": {"version": 1}})
    outcomes = await asyncio.gather(
        *(
            world.call(
                world.admin,
                "exec.approvals.set",
                {"file": {"version": 1, "defaults": {"security": word}}, "baseHash": first["hash"]},
            )
            for word in ("deny", "full")
        ),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in outcomes) == ["RefusedError", "dict"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
LEVELS = st.sampled_from(
    ["version", "socket", "defaults", "agents", "main", "allowlist", "pattern", "id", "token", "x"]
)
FILES = st.recursive(
    st.just(1) | st.just("/a") | JSON,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LEVELS, inner, max_size=5),
    max_leaves=20,
)


@given(old=FILES)
def test_any_file_can_be_replaced_and_loses_no_secret(old: object) -> None:
    """Whatever somebody wrote by hand: setting a file works, and a token that was there is there."""
    before = old if isinstance(old, dict) else {}
    merged = merge(before, {"version": 1, "agents": {"main": {"allowlist": [{"pattern": "/a"}]}}})
    assert merged["version"] == 1
    assert (
        merged["agents"]["main"]["allowlist"][0]["pattern"] == "/a" and merged["agents"]["main"]["allowlist"][0]["id"]
    )
    if isinstance(before.get("socket"), dict):
        assert merged["socket"] == before["socket"]


# exec.approvals.node.*


async def test_a_nodes_file_is_asked_of_the_node(tmp_path: Path) -> None:
    asked: list[tuple[str, str, str, object]] = []

    async def invoke(owner: UserId, node_id: str, command: str, params: Mapping[str, object], /) -> object:
        asked.append((owner, node_id, command, params))
        return {"path": "/there", "anything": ["it", "says"]}

    async def record(action: str, *, actor: str, subject: str, details: Mapping[str, object]) -> None:
        asked.append((action, actor, subject, details["patterns"]))

    table = collect(ExecApprovalMethods(ExecFile(tmp_path / "f"), record, invoke))
    ada = caller_of(UserId("ada"), Role.ADMIN)
    get, put = table["exec.approvals.node.get"], table["exec.approvals.node.set"]
    answer = await get.call(ada, get.decoder.decode(b'{"nodeId":"n1"}'))
    assert answer == {"path": "/there", "anything": ["it", "says"]}
    file = {"version": 1, "agents": {"*": {"allowlist": [{"pattern": "/a", "lastUsedAt": 5}]}}}
    raw = json.dumps({"nodeId": "n1", "file": file, "baseHash": "h"}).encode()
    await put.call(ada, put.decoder.decode(raw))
    assert asked == [
        ("ada", "n1", "system.execApprovals.get", {}),
        ("config.changed", "ada", "f of n1", 1),
        ("ada", "n1", "system.execApprovals.set", {"file": file, "baseHash": "h"}),
    ]


async def test_without_nodes_none_is_connected(world: World) -> None:
    with pytest.raises(RefusedError, match=r"^node not connected$") as refused:
        await world.call(world.admin, "exec.approvals.node.get", {"nodeId": "n1"})
    assert refused.value.error["code"] == "UNAVAILABLE"
    assert refused.value.error["details"] == {"code": "NOT_CONNECTED"}


# exec.approval.*


async def test_a_client_that_asks_in_two_gets_two_answers(tmp_path: Path) -> None:
    async with open_people(tmp_path) as people:
        world = people.world
        mine, peer = world.listen(world.user), FakeConnection(world.user)
        params = {"id": "a", "command": "ls", "commandArgv": ["ls"], "twoPhase": True, "timeoutMs": 60_000}
        raw = msgspec.Raw(json.dumps(params).encode())
        world.dispatcher.dispatch(peer, Request(id="7", method="exec.approval.request", params=raw))
        first = await asyncio.wait_for(peer.answers.get(), 40)
        accepted = first["payload"]
        assert (first["id"], accepted["status"], accepted["id"]) == ("7", "accepted", "a")
        assert accepted["expiresAtMs"] - accepted["createdAtMs"] == 60_000
        (event,) = mine.named("exec.approval.requested")
        assert {name: value for name, value in event["payload"].items() if name != "request"} == {
            name: value for name, value in accepted.items() if name != "status"
        }
        (listed,) = (await people.call(world.user, "exec.approval.list"))["approvals"]
        assert (listed["id"], listed["mine"], listed["decidable"]) == ("a", True, True)
        assert (await people.call(people.guardian, "exec.approval.list"))["approvals"] == []
        waiting = asyncio.ensure_future(people.call(world.user, "exec.approval.waitDecision", {"id": "a"}))
        assert await people.call(world.user, "exec.approval.resolve", {"id": "a", "decision": "deny"}) == {"ok": True}
        second = await asyncio.wait_for(peer.answers.get(), 40)
        times = {name: accepted[name] for name in ("createdAtMs", "expiresAtMs")}
        assert second["payload"] == {"id": "a", "decision": "deny", **times} == await waiting
        # Answers are kept a while
        assert await people.call(world.user, "exec.approval.waitDecision", {"id": "a"}) == second["payload"]
        people.clock.now_ms += 15_000
        with pytest.raises(RefusedError, match=r"^approval expired or not found$"):
            await people.call(world.user, "exec.approval.waitDecision", {"id": "a"})


async def test_what_nobody_answers_expires(tmp_path: Path) -> None:
    async with open_people(tmp_path) as people:
        people.world.listen(people.world.user)
        answer = await people.call(people.world.user, "exec.approval.request", {"command": "ls", "timeoutMs": 5})
        assert answer["decision"] is None
        with pytest.raises(RefusedError, match=r"^unknown approval id$"):
            await people.call(
                people.world.user, "exec.approval.resolve", {"id": answer["id"], "decision": "allow-once"}
            )


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"command": "ls", "host": "node"}, "nodeId is required for host=node"),
        ({"command": "ls", "host": "node", "nodeId": "n"}, "commandArgv is required for host=node"),
        ({"command": "ls", "host": "node", "nodeId": "n", "commandArgv": []}, "commandArgv is required for host=node"),
        ({"command": ""}, "must NOT have fewer than 1 characters"),
        ({"command": "x" * 20_000}, "must NOT have more than 16384 characters"),
        ({"command": "ls", "commandArgv": ["x" * 20_000]}, "must NOT have more than 16384 characters"),
        ({"command": "ls", "more": 1}, "unexpected property 'more'"),
        (
            {
                "command": "ls",
                "commandArgv": ["ls"],
                "systemRunPlanV2": {
                    "version": 2,
                    "argv": ["rm"],
                    "cwd": None,
                    "rawCommand": None,
                    "agentId": None,
                    "sessionKey": None,
                },
            },
            "commandArgv: is not that of systemRunPlanV2",
        ),
    ],
)
async def test_a_question_that_makes_no_sense(tmp_path: Path, params: dict[str, object], error: str) -> None:
    async with open_people(tmp_path) as people:
        with pytest.raises(RefusedError) as refused:
            await people.call(people.world.user, "exec.approval.request", params)
        assert error in str(refused.value)


async def test_who_does_not_decide_sees_no_grants_of_others(tmp_path: Path) -> None:
    async with open_people(tmp_path) as people:
        admin, user = people.world.admin, people.world.user
        for method, more in (("exec.approval.grants", {}), ("exec.approval.grants.remove", {"id": "x"})):
            with pytest.raises(RefusedError, match=r"^not permitted: approvals\.decide$"):
                await people.call(user, method, {"userId": admin.user_id, **more})
            await people.call(admin, method, {"userId": user.user_id, **more})
            with pytest.raises(RefusedError, match=r"not permitted|missing scope"):
                await people.call(people.world.child, method, more)
