"""The registry of nodes: which is meant, what a command's end says, and that nothing a node answers breaks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet.gateway.nodes import KEPT_PAYLOAD_BYTES, MAX_REPEATS, NodeRunResult, Nodes
from skynet.gateway.system_run import FORWARDED, guard_system_run
from skynet.tables import TABLES
from skynet_memory.database import Database
from skynet_memory.ids import ConnId, DeviceId, Role, UserId, new_id
from skynet_memory.migrations import migrate
from skynet_protocol.connect import ClientInfo, ConnectParams
from skynet_protocol.errors import RequestError
from skynet_protocol.nodes import NodeInvokeResultParams, allowed_commands, node_platform
from skynet_protocol.params import decode_params
from skynet_users.caller import Caller
from skynet_users.devices import DeviceStore
from skynet_users.nodes import NodeStore
from skynet_users.people import UserStore

_RESULT = msgspec.json.Decoder(NodeInvokeResultParams)


@dataclass
class Peer:
    """A node's connection without a socket."""

    caller: Caller
    sent: list[dict[str, Any]] = field(default_factory=list)
    ended: tuple[int, str] | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def conn_id(self) -> ConnId:
        assert self.caller.conn_id is not None
        return self.caller.conn_id

    def send_event(self, frame: Callable[[int], bytes], *, droppable: bool, numbered: bool = True) -> None:
        assert not numbered and not droppable
        self.sent.append(json.loads(frame(7))["payload"])
        self.news.set()

    def close(self, code: int, reason: str) -> None:
        self.ended = (code, reason)


@dataclass
class House:
    nodes: Nodes
    owner: UserId

    def connect(self, device: str, name: str = "", *, platform: str = "linux", owner: UserId | None = None) -> Peer:
        caller = Caller(
            user_id=owner or self.owner,
            role=Role.USER,
            scopes=frozenset(),
            correlation_id="c",
            gateway_role="node",
            conn_id=ConnId(new_id()),
            device_id=DeviceId(device),
        )
        peer = Peer(caller)
        client = ClientInfo(id="node-host", version="1", platform=platform, mode="node", display_name=name)
        commands = ("system.run", "system.which", "system.execApprovals.get", "camera.snap")
        self.nodes.connected(
            peer, ConnectParams(min_protocol=3, max_protocol=3, client=client, role="node", commands=commands)
        )
        return peer

    def answer(self, peer: Peer, **fields: Any) -> bool:
        params = {"id": peer.sent[-1]["id"], "nodeId": peer.caller.device_id, "ok": True} | fields
        return self.nodes.take_result(
            peer.caller, decode_params(msgspec.json.encode(params), _RESULT, "node.invoke.result")
        )

    async def while_asked(self, asking: Any, peer: Peer, **fields: Any) -> Any:
        """What somebody gets who asks a node that answers with ``fields``."""
        async with asyncio.timeout(40), asyncio.TaskGroup() as group:
            task = group.create_task(asking)
            await peer.news.wait()
            peer.news.clear()
            assert self.answer(peer, **fields)
            return await task


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, TABLES)
        owner = await UserStore(db).ensure_owner()
        yield House(Nodes(DeviceStore(db), NodeStore(db), deny=("canvas.eval",)), owner.id)


@pytest.mark.parametrize(
    ("platform", "family", "expected"),
    [
        ("linux", "", "linux"),
        ("Darwin 24", "", "macos"),
        ("macOS 15.1", "", "macos"),
        ("win32", "", "windows"),
        ("iOS 19", "", "ios"),
        ("android", "", "android"),
        ("beos", "iPad", "ios"),
        ("beos", "", "unknown"),
    ],
)
def test_platforms(platform: str, family: str, expected: str) -> None:
    assert node_platform(platform, family) == expected


def test_what_a_platform_allows() -> None:
    assert allowed_commands("linux") == {
        "system.run.prepare",
        "system.run",
        "system.which",
        "system.notify",
        "browser.proxy",
    }
    assert {"canvas.eval", "camera.list", "system.run"} <= allowed_commands("macos")
    assert "system.run" not in allowed_commands("ios") | allowed_commands("android")
    assert "camera.snap" not in allowed_commands("ios")
    chosen = allowed_commands("ios", ("camera.snap", "system.execApprovals.set"), ("canvas.eval",))
    assert "camera.snap" in chosen and "canvas.eval" not in chosen and "system.execApprovals.set" not in chosen


class TestFinding:
    async def test_by_what_people_call_it(self, house: House) -> None:
        for device, name in (
            ("aaaaaa11", "Pantry"),
            ("bbbbbb22", "pan"),
            ("cccccc33", "Kitchen Mac"),
            ("dddddd44", ""),
        ):
            house.connect(device, name)
        for wanted, device in (
            ("Pantry", "aaaaaa11"),
            ("PAN", "bbbbbb22"),
            ("pant", "aaaaaa11"),
            (" kit ", "cccccc33"),
            ("cccccc", "cccccc33"),
            ("aaaaaa11", "aaaaaa11"),
            ("dddddd44", "dddddd44"),
        ):
            assert (await house.nodes.find(house.owner, wanted)).node_id == device, wanted
        with pytest.raises(RequestError, match=r'^several nodes are called "pa": '):
            await house.nodes.find(house.owner, "pa")
        for wanted in ("attic", "cccc", "", "  "):
            with pytest.raises(RequestError, match=r"^unknown node .*Pantry"):
                await house.nodes.find(house.owner, wanted)
        with pytest.raises(RequestError, match=r'^unknown node "Pantry"; none is paired$'):
            await house.nodes.find(UserId("somebody"), "Pantry")

    async def test_a_device_that_moved_is_its_new_persons_alone(self, house: House) -> None:
        before = house.connect("aaaaaa11")
        house.connect("aaaaaa11", owner=UserId("new"))
        assert before.ended is not None
        house.nodes.disconnected(before)  # which the newer one outlives
        assert house.nodes.is_connected(UserId("new"), "aaaaaa11")
        assert not house.nodes.is_connected(house.owner, "aaaaaa11")


class TestRunning:
    async def test_a_program_to_its_end(self, house: House) -> None:
        peer = house.connect("aaaaaa11", "Pantry")
        payload = {"exitCode": 3, "stdout": "o", "stderr": "e", "timedOut": False, "success": False, "error": None}
        running = house.nodes.run(
            house.owner, "pantry", ["ls", "-l"], cwd="/tmp", env={"A": "b"}, timeout_s=2, approved="allow-once"
        )
        result = await house.while_asked(running, peer, payloadJSON=json.dumps(payload))
        assert result == NodeRunResult("o", "e", 3, timed_out=False)
        asked = peer.sent[0]
        params = json.loads(asked["paramsJSON"])
        assert params.pop("runId")
        assert params == {
            "command": ["ls", "-l"],
            "cwd": "/tmp",
            "env": {"A": "b"},
            "timeoutMs": 2000,
            "approved": True,
            "approvalDecision": "allow-once",
        }
        assert asked["timeoutMs"] == 7000

    @pytest.mark.parametrize(
        ("platform", "argv"),
        [("linux", ["/bin/sh", "-lc", "a | b"]), ("windows", ["cmd.exe", "/d", "/s", "/c", "a | b"])],
    )
    async def test_a_line_for_the_nodes_shell(self, house: House, platform: str, argv: list[str]) -> None:
        peer = house.connect("aaaaaa11", "Pantry", platform=platform)
        result = await house.while_asked(house.nodes.run(house.owner, "pan", "a | b"), peer, payload={"timedOut": True})
        assert result == NodeRunResult("", "", None, timed_out=True)
        params = json.loads(peer.sent[0]["paramsJSON"])
        assert (params["command"], params["rawCommand"]) == (argv, "a | b")
        assert "approved" not in params

    async def test_what_is_offline_is_said_by_its_name(self, house: House) -> None:
        peer = house.connect("aaaaaa11", "Pantry")
        house.nodes.disconnected(peer)
        with pytest.raises(RequestError, match="unknown node"):
            await house.nodes.run(house.owner, "Pantry", ["ls"])  # it was never paired


class TestRepeats:
    async def test_great_answers_are_not_kept(self, house: House) -> None:
        peer = house.connect("aaaaaa11")
        asking = house.nodes.invoke(house.owner, "aaaaaa11", "system.which", {}, 5, "key")
        assert len(await house.while_asked(asking, peer, payload="x" * KEPT_PAYLOAD_BYTES)) == KEPT_PAYLOAD_BYTES
        with pytest.raises(RequestError, match="answered already"):
            await house.nodes.invoke(house.owner, "aaaaaa11", "system.which", {}, 5, "key")
        assert len(peer.sent) == 1

    async def test_so_many_keys_are_known(self, house: House) -> None:
        peer = house.connect("aaaaaa11")
        for number in range(MAX_REPEATS + 5):
            asking = house.nodes.invoke(house.owner, "aaaaaa11", "system.which", {}, 5, f"k{number}")
            assert await house.while_asked(asking, peer, payload=number) == number
        assert await house.nodes.invoke(house.owner, "aaaaaa11", "system.which", {}, 5, "k50") == 50
        assert len(house.nodes._repeats[DeviceId("aaaaaa11")]) == MAX_REPEATS

    async def test_giving_up_ends_nothing(self, house: House) -> None:
        peer = house.connect("aaaaaa11")
        asking = asyncio.ensure_future(house.nodes.invoke(house.owner, "aaaaaa11", "system.which", {}, 5, "key"))
        await peer.news.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert house.answer(peer, payload=1)
        assert await house.nodes.invoke(house.owner, "aaaaaa11", "system.which", {}, 5, "key") == 1


async def test_its_own_rules_are_asked_past_the_list(house: House) -> None:
    peer = house.connect("aaaaaa11")
    asking = house.nodes.invoke(house.owner, "aaaaaa11", "system.execApprovals.get", {})
    assert await house.while_asked(asking, peer, payloadJSON='{"exists":true}') == {"exists": True}
    with pytest.raises(RequestError, match="not in the allowlist"):
        await house.nodes.invoke(house.owner, "aaaaaa11", "system.execApprovals.set", {})  # not offered


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    fields=st.fixed_dictionaries(
        {},
        optional={
            "ok": st.booleans(),
            "payload": json_values,
            "payloadJSON": st.none() | st.text() | json_values.map(json.dumps),
            "error": st.none() | st.fixed_dictionaries({}, optional={"code": st.text(min_size=1)}),
        },
    )
)
async def test_any_answer_is_an_answer_or_an_error(house: House, fields: dict[str, Any]) -> None:
    peer = house.connect("aaaaaa11")
    try:
        value = await house.while_asked(house.nodes.ask(house.owner, "aaaaaa11", "system.run"), peer, **fields)
    except* RequestError as group:
        assert all(str(error) for error in group.exceptions)
    else:
        msgspec.json.decode(value.payload)
    finally:
        house.nodes.disconnected(peer)


class _Approvals:
    """One approval, of ``ls`` on node ``n``."""

    def check(self, owner: UserId, run_id: str, node_id: str, argv: Any, **about: Any) -> str | None:
        if run_id != "r":
            return "UNKNOWN_APPROVAL_ID"
        if node_id != "n":
            return "APPROVAL_NODE_MISMATCH"
        return None if (list(argv), about["cwd"]) == (["ls"], "/x") else "APPROVAL_REQUEST_MISMATCH"

    async def allows(self, user_id: UserId, commands: Any, *, host: str, node_id: str) -> bool:
        return [list(argv) for argv in commands] == [["ls"]] and self.always

    always = False


CALLER = Caller(user_id=UserId("u"), role=Role.USER, scopes=frozenset(), correlation_id="c")
APPROVED = {"command": ["ls"], "cwd": "/x", "runId": " r ", "approved": True}


class TestGuard:
    async def test_what_was_approved_goes_through(self) -> None:
        approvals = _Approvals()
        params = APPROVED | {"approvalDecision": "allow-always", "other": 1}
        expected = {"command": ["ls"], "cwd": "/x", "runId": "r", "approved": True}
        assert await guard_system_run(CALLER, "n", params, approvals) == expected | {"approvalDecision": "allow-once"}
        approvals.always = True
        assert await guard_system_run(CALLER, "n", params, approvals) == expected | {"approvalDecision": "allow-always"}

    @pytest.mark.parametrize(
        ("changed", "code"),
        [
            ({"runId": "other"}, "UNKNOWN_APPROVAL_ID"),
            ({"runId": ""}, "MISSING_RUN_ID"),
            ({"runId": 5}, "MISSING_RUN_ID"),
            ({"command": ["ls", "-l"]}, "APPROVAL_REQUEST_MISMATCH"),
            ({"command": "ls"}, "APPROVAL_REQUEST_MISMATCH"),
            ({"command": [["ls"]]}, "APPROVAL_REQUEST_MISMATCH"),
            ({"cwd": "/y"}, "APPROVAL_REQUEST_MISMATCH"),
            ({"env": {"A": 1}}, "APPROVAL_REQUEST_MISMATCH"),
            ({"approved": False, "approvalDecision": "allow-once", "runId": None}, "MISSING_RUN_ID"),
        ],
    )
    async def test_nothing_else_does(self, changed: dict[str, Any], code: str) -> None:
        with pytest.raises(RequestError) as refused:
            await guard_system_run(CALLER, "n", APPROVED | changed, _Approvals())
        assert refused.value.details == {"code": code}

    async def test_where_it_has_to_be_approved(self) -> None:
        with pytest.raises(RequestError, match="approval required"):
            await guard_system_run(CALLER, "n", {"command": ["ls"]}, _Approvals(), needs_approval=True)
        assert await guard_system_run(CALLER, "n", APPROVED, _Approvals(), needs_approval=True)

    @given(
        params=json_values | st.dictionaries(st.sampled_from([*FORWARDED, "approved", "approvalDecision"]), json_values)
    )
    async def test_nobody_says_so_alone(self, params: Any) -> None:
        try:
            forwarded = await guard_system_run(CALLER, "n", params, None)
        except RequestError:
            return
        assert forwarded.keys() <= set(FORWARDED)
