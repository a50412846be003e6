"""Nodes over real sockets (OPENCLAW-V3 6.13): whose they are, what they are asked, and what happens when they go."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skynet.gateway.nodes import MAX_PAYLOAD_BYTES, MAX_PENDING
from skynet_memory.ids import Role
from skynet_protocol.device import DeviceIdentity
from skynet_users.credentials import CredentialStore
from skynet_users.people import UserChanges, UserStore
from tests.end_to_end.scene import add_person, owner_of
from tests.support.client import Refused, WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer
from tests.support.node import ScriptedNode, connected_node
from tests.support.polling import until


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def gateway(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, models=models, toml='[nodes]\nallow_commands = ["camera.snap"]\n') as running:
        yield running


@pytest.fixture
async def owner(gateway: RunningGateway) -> AsyncIterator[WireClient]:
    async with gateway.client() as client:
        yield client


@pytest.fixture
async def node(gateway: RunningGateway) -> AsyncIterator[ScriptedNode]:
    async with connected_node(gateway) as connected:
        yield connected


def invocation(node: ScriptedNode, command: str = "system.which", **more: Any) -> dict[str, Any]:
    return {"nodeId": node.node_id, "command": command, "idempotencyKey": str(uuid.uuid4()), **more}


async def ask(client: WireClient, node: ScriptedNode, command: str = "system.which", **more: Any) -> str:
    """Begin an invocation; the id of its request."""
    return await client.send_frame("node.invoke", invocation(node, command, **more))


async def error_of(client: WireClient, request_id: str) -> dict[str, Any]:
    frame = await client.response(request_id)
    assert not frame["ok"], frame
    error: dict[str, Any] = frame["error"]
    return error


class TestAsking:
    async def test_there_and_back(self, owner: WireClient, node: ScriptedNode) -> None:
        params = invocation(node, params={"bins": ["ls"]}, timeoutMs=15000)
        request_id = await owner.send_frame("node.invoke", params)
        asked = await node.asked()
        assert asked == {
            "id": asked["id"],
            "nodeId": node.node_id,
            "command": "system.which",
            "paramsJSON": '{"bins":["ls"]}',
            "timeoutMs": 15000,
            "idempotencyKey": params["idempotencyKey"],
        }
        assert await node.answer(asked, {"bins": {"ls": "/bin/ls"}}) == {"ok": True}
        assert (await owner.response(request_id))["payload"] == {
            "ok": True,
            "nodeId": node.node_id,
            "command": "system.which",
            "payload": {"bins": {"ls": "/bin/ls"}},
            "payloadJSON": '{"bins": {"ls": "/bin/ls"}}',
        }

    async def test_without_params_and_time(self, owner: WireClient, node: ScriptedNode) -> None:
        request_id = await ask(owner, node)
        asked = await node.asked()
        assert asked["paramsJSON"] is None and "timeoutMs" not in asked
        await node.answer(asked, payload={"plain": True}, payloadJSON=None, error=None)
        answer = (await owner.response(request_id))["payload"]
        assert (answer["payload"], answer["payloadJSON"]) == ({"plain": True}, None)

    async def test_what_the_node_may_not_or_cannot_do(self, owner: WireClient, node: ScriptedNode) -> None:
        for command, text, reason in (
            ("sms.send", '"sms.send" is not in the allowlist for platform "linux"', "command not allowlisted"),
            (
                "camera.snap",
                'the node (platform: linux) does not support "camera.snap"',
                "command not declared by node",
            ),
        ):
            error = await error_of(owner, await ask(owner, node, command))
            assert (error["code"], error["message"]) == ("INVALID_REQUEST", f"node command not allowed: {text}")
            assert (error["details"]["reason"], error["details"]["command"]) == (reason, command)
        error = await error_of(owner, await ask(owner, node, "system.execApprovals.get"))
        assert error["message"] == "node.invoke does not allow system.execApprovals.*; use exec.approvals.node.*"
        described = await owner.call("node.describe", {"nodeId": node.node_id})
        assert described["commands"] == ["system.run", "system.run.prepare", "system.which"]
        assert (described["caps"], described["pathEnv"]) == (["system"], "/usr/bin:/bin")

    async def test_its_error_is_told(self, owner: WireClient, node: ScriptedNode) -> None:
        request_id = await ask(owner, node, "system.run", params={"command": ["x"]})
        await node.answer(await node.asked(), ok=False, error={"code": "DENIED", "message": "SYSTEM_RUN_DENIED: no"})
        error = await error_of(owner, request_id)
        assert (error["code"], error["message"]) == ("UNAVAILABLE", "SYSTEM_RUN_DENIED: no")
        assert error["details"]["nodeError"] == {"code": "DENIED", "message": "SYSTEM_RUN_DENIED: no"}

    async def test_of_two_nodes_each_gets_and_answers_its_own(self, gateway: RunningGateway, owner: WireClient) -> None:
        async with connected_node(gateway, name="A") as first, connected_node(gateway, name="B") as second:
            ids = [await ask(owner, each) for each in (first, second)]
            one, two = await first.asked(), await second.asked()
            # an answer to what the other was asked is nobody's
            assert await second.answer(one | {"id": one["id"]}, {"from": "second"}) == {"ok": True, "ignored": True}
            await second.answer(two, {"from": "second"})
            await first.answer(one, {"from": "first"})
            payloads = [(await owner.response(each))["payload"]["payload"] for each in ids]
            assert payloads == [{"from": "first"}, {"from": "second"}]
            with pytest.raises(Refused, match=r"^nodeId mismatch$"):
                await first.client.call("node.invoke.result", {"id": "x", "nodeId": second.node_id, "ok": True})


class TestGoing:
    async def test_gone_in_the_middle(self, gateway: RunningGateway, owner: WireClient) -> None:
        """SK node gone mid-invoke: UNAVAILABLE at once, nothing hangs."""
        async with connected_node(gateway) as node:
            requests = [await ask(owner, node, timeoutMs=600_000) for _ in range(5)]
            for _ in requests:
                await node.asked()
            node.client.socket.transport.abort()
            for request_id in requests:
                error = await error_of(owner, request_id)
                assert (error["code"], error["message"]) == ("UNAVAILABLE", "node disconnected (system.which)")
                assert error["details"]["code"] == "NOT_CONNECTED"
            error = await error_of(owner, await ask(owner, node))
            assert (error["code"], error["message"]) == ("UNAVAILABLE", "node not connected")
            (listed,) = (await owner.call("node.list"))["nodes"]
            assert (listed["connected"], listed["paired"], listed["commands"]) == (False, True, [])
        async with connected_node(gateway, device=node.device) as again:
            request_id = await ask(owner, again)
            await again.answer(await again.asked(), 1)
            assert (await owner.response(request_id))["payload"]["payload"] == 1

    async def test_too_slow(self, owner: WireClient, node: ScriptedNode) -> None:
        error = await error_of(owner, await ask(owner, node, timeoutMs=50))
        assert (error["code"], error["message"]) == ("UNAVAILABLE", "node invoke timed out")
        assert error["details"]["nodeError"]["code"] == "TIMEOUT"
        assert await node.answer(await node.asked(), "late") == {"ok": True, "ignored": True}

    async def test_a_second_connection_takes_the_place_of_the_first(
        self, gateway: RunningGateway, owner: WireClient, node: ScriptedNode
    ) -> None:
        request_id = await ask(owner, node)
        asked = await node.asked()
        async with connected_node(gateway, device=node.device) as newer:
            assert (await error_of(owner, request_id))["message"] == "node disconnected (system.which)"
            assert await node.client.closed() == (1008, "replaced by another connection of this node")
            assert await newer.answer(asked, "not mine") == {"ok": True, "ignored": True}
            request_id = await ask(owner, newer)
            await newer.answer(await newer.asked(), "new")
            assert (await owner.response(request_id))["payload"]["payload"] == "new"

    async def test_a_removed_device(self, owner: WireClient, node: ScriptedNode) -> None:
        request_id = await ask(owner, node)
        await node.asked()
        await owner.call("device.pair.remove", {"deviceId": node.node_id})
        assert (await error_of(owner, request_id))["message"] == "node disconnected (system.which)"
        assert (await error_of(owner, await ask(owner, node)))["message"] == "node not connected"
        assert (await node.client.closed())[0] == 1008
        assert (await owner.call("node.list"))["nodes"] == []

    async def test_a_revoked_token(self, owner: WireClient, node: ScriptedNode) -> None:
        request_id = await ask(owner, node)
        await node.asked()
        await owner.call("device.token.revoke", {"deviceId": node.node_id, "role": "node"})
        assert (await error_of(owner, request_id))["message"] == "node disconnected (system.which)"
        assert (await node.client.closed())[0] == 1008

    async def test_a_person_who_is_put_out(self, gateway: RunningGateway, owner: WireClient) -> None:
        user, token = await add_person(gateway, Role.USER)
        async with connected_node(gateway, token=token) as node, gateway.client(token=token) as client:
            await ask(client, node)
            await node.asked()
            await owner.call("users.set", {"userId": user, "disabled": True})
            assert (await node.client.closed())[0] == (await client.closed())[0] == 1008

    async def test_who_asked_may_go_too(self, gateway: RunningGateway, owner: WireClient, node: ScriptedNode) -> None:
        async with gateway.client() as client:
            await ask(client, node)
            asked = await node.asked()
        await owner.call("ping")
        assert (await node.answer(asked, 1))["ok"]
        request_id = await ask(owner, node)
        await node.answer(await node.asked(), 2)
        assert (await owner.response(request_id))["payload"]["payload"] == 2


class TestBounds:
    async def test_a_flood_of_answers(self, owner: WireClient, node: ScriptedNode) -> None:
        ids = [
            await node.client.send_frame(
                "node.invoke.result", {"id": str(number), "nodeId": node.node_id, "ok": True, "payload": "x" * 1000}
            )
            for number in range(2000)
        ]
        request_id = await ask(owner, node)
        await node.answer(await node.asked(), "heard")
        assert (await owner.response(request_id))["payload"]["payload"] == "heard"
        for each in ids:
            assert (await node.client.response(each))["payload"] == {"ok": True, "ignored": True}

    async def test_so_many_wait_for_one_node(self, owner: WireClient, node: ScriptedNode) -> None:
        requests = [await ask(owner, node) for _ in range(MAX_PENDING)]
        error = await error_of(owner, await ask(owner, node))
        assert (error["code"], error["retryable"]) == ("UNAVAILABLE", True)
        await node.answer(await node.asked(), 1)
        assert (await owner.response(requests[0]))["ok"]
        await ask(owner, node)
        for _ in range(MAX_PENDING):
            await node.asked()

    async def test_sizes(self, owner: WireClient, node: ScriptedNode) -> None:
        error = await error_of(owner, await ask(owner, node, params={"x": "y" * 1_100_000}))
        assert error["message"].startswith("params are 11000") and error["code"] == "INVALID_REQUEST"
        request_id = await ask(owner, node)
        await node.answer(await node.asked(), payloadJSON=json.dumps("z" * MAX_PAYLOAD_BYTES))
        assert "the node's answer is" in (await error_of(owner, request_id))["message"]

    @pytest.mark.parametrize("text", ["{", "nope", "[" * 100_000, "NaN", '{"a":1} x'])
    async def test_a_text_that_is_no_json(self, owner: WireClient, node: ScriptedNode, text: str) -> None:
        request_id = await ask(owner, node)
        assert await node.answer(await node.asked(), payloadJSON=text) == {"ok": True}
        answer = (await owner.response(request_id))["payload"]
        assert (answer["payload"], answer["payloadJSON"]) == ({"payloadJSON": text}, text)

    @pytest.mark.parametrize(
        "fields",
        [{"payload": {"id": 1}, "more": 1}, {"ok": "yes"}, {"error": {"code": 1}}, {"payloadJSON": 5}, {"id": ""}],
    )
    async def test_an_invalid_answer_is_none(
        self, owner: WireClient, node: ScriptedNode, fields: dict[str, Any]
    ) -> None:
        request_id = await ask(owner, node)
        asked = await node.asked()
        with pytest.raises(Refused, match=r"^invalid node\.invoke\.result params: "):
            await node.answer(asked, **fields)
        await node.answer(asked, 1)
        assert (await owner.response(request_id))["ok"]

    async def test_a_key_runs_once(self, gateway: RunningGateway, owner: WireClient, node: ScriptedNode) -> None:
        params = invocation(node, "system.run", params={"command": ["true"]})
        first = await owner.send_frame("node.invoke", params)
        asked = await node.asked()
        second = await owner.send_frame("node.invoke", params)
        await owner.call("ping")
        await node.answer(asked, {"exitCode": 0})
        answers = [(await owner.response(each))["payload"] for each in (first, second)]
        answers.append(await owner.call("node.invoke", params))
        assert answers[0] == answers[1] == answers[2]
        with pytest.raises(Refused, match=r"^idempotencyKey was used for another command$"):
            await owner.call("node.invoke", params | {"params": {"command": ["false"]}})
        with pytest.raises(Refused, match="node not connected"):
            _, token = await add_person(gateway, Role.USER)
            async with gateway.client(token=token) as other:
                await other.call("node.invoke", params)
        assert len([e for e in node.client.events if e["event"] == "node.invoke.request"]) == 1


class TestWhose:
    async def test_nobody_elses(self, gateway: RunningGateway, owner: WireClient, node: ScriptedNode) -> None:
        """Not even an admin's is somebody else's, nor the other way round."""
        _, token = await add_person(gateway, Role.USER)
        async with gateway.client(token=token) as other, connected_node(gateway, token=token, name="Theirs") as theirs:
            for client, mine, foreign in ((other, theirs, node), (owner, node, theirs)):
                assert [row["nodeId"] for row in (await client.call("node.list"))["nodes"]] == [mine.node_id]
                error = await error_of(client, await ask(client, foreign))
                assert error["message"] == "node not connected"
                with pytest.raises(Refused, match=r"^unknown nodeId$"):
                    await client.call("node.describe", {"nodeId": foreign.node_id})
            with pytest.raises(Refused, match=r"^unknown nodeId$"):
                await owner.call("node.rename", {"nodeId": theirs.node_id, "displayName": "x"})
            request_id = await ask(owner, node)
            asked = await node.asked()
            forged = {"id": asked["id"], "nodeId": theirs.node_id, "ok": True, "payloadJSON": '"forged"'}
            assert await theirs.client.call("node.invoke.result", forged) == {"ok": True, "ignored": True}
            await node.answer(asked, "real")
            assert (await owner.response(request_id))["payload"]["payload"] == "real"

    async def test_who_may_not_run_commands(self, gateway: RunningGateway, owner: WireClient) -> None:
        _, token = await add_person(gateway, Role.CHILD)
        async with gateway.client(token=token) as child, connected_node(gateway, token=token) as node:
            with pytest.raises(Refused, match=r"^not permitted: commands\.run$"):
                await child.call("node.invoke", invocation(node))
        for method in ("node.invoke.result", "node.event", "skills.bins"):
            with pytest.raises(Refused, match=r"^unauthorized role: operator$"):
                await owner.call(method, {})
        async with connected_node(gateway) as node:
            assert await node.client.call("skills.bins", {}) == {"bins": []}

    async def test_who_needs_approvals(self, gateway: RunningGateway) -> None:
        user, token = await add_person(gateway, Role.USER)
        await UserStore(gateway.app.database).set(user, UserChanges(requires_approval=True))
        async with gateway.client(token=token) as client, connected_node(gateway, token=token) as node:
            error = await error_of(client, await ask(client, node, "system.run", params={"command": ["true"]}))
            assert (error["message"], error["details"]["code"]) == ("approval required", "APPROVAL_REQUIRED")
            error = await error_of(client, await ask(client, node, "browser.proxy"))
            assert error["details"]["code"] == "FORBIDDEN"
            request_id = await ask(client, node, "system.which")
            await node.answer(await node.asked(), 1)
            assert (await client.response(request_id))["ok"]

    async def test_a_limited_token_makes_no_node(self, gateway: RunningGateway) -> None:
        """A node speaks for its person, and its own token has no limits."""
        user = await owner_of(gateway)
        narrow = await CredentialStore(gateway.app.database).create_token(user, "narrow", scopes=("operator.read",))
        with pytest.raises(Refused, match="unauthorized"):
            async with connected_node(gateway, token=narrow.token.reveal()):
                pass

    async def test_nobody_says_that_it_was_approved(self, owner: WireClient, node: ScriptedNode) -> None:
        command = {"command": ["rm", "x"]}
        for params, code in (
            ({"approved": True}, "MISSING_RUN_ID"),
            ({"approvalDecision": "allow-always"}, "MISSING_RUN_ID"),
            ({"approved": True, "runId": "x"}, "UNKNOWN_APPROVAL_ID"),
        ):
            error = await error_of(owner, await ask(owner, node, "system.run", params=command | params))
            assert error["details"]["code"] == code
        request_id = await ask(
            owner, node, "system.run", params=command | {"approved": False, "approvalDecision": "yes", "secret": 1}
        )
        asked = await node.asked()
        assert json.loads(asked["paramsJSON"]) == command
        await node.answer(asked, 1)
        assert (await owner.response(request_id))["ok"]


class TestNames:
    async def test_a_given_name_outlives_the_connection(self, gateway: RunningGateway, owner: WireClient) -> None:
        async with connected_node(gateway) as node:
            renamed = await owner.call("node.rename", {"nodeId": node.node_id, "displayName": " Larder "})
            assert renamed == {"nodeId": node.node_id, "displayName": "Larder"}
        async with connected_node(gateway, device=node.device):
            (row,) = (await owner.call("node.list"))["nodes"]
            assert (row["displayName"], row["connected"]) == ("Larder", True)
            (paired,) = (await owner.call("node.pair.list"))["paired"]
            assert (paired["nodeId"], paired["displayName"]) == (node.node_id, "Larder")
            assert "token" not in paired

    async def test_presence_shows_it(self, owner: WireClient, node: ScriptedNode) -> None:
        entries = await owner.call("system-presence")
        (entry,) = (each for each in entries if each.get("deviceId") == node.node_id)
        assert (entry["mode"], entry["roles"], entry["host"]) == ("node", ["node"], "Pantry")


class TestTelling:
    async def test_a_request_is_a_message_of_its_person(
        self, owner: WireClient, node: ScriptedNode, models: ModelServer
    ) -> None:
        assert await node.tell("agent.request", {"message": "say=heard", "deliver": True, "to": "x"}) == {"ok": True}
        key = f"agent:main:node-{node.node_id}"
        await owner.event(lambda e: e["event"] == "chat" and e["payload"]["state"] == "final")
        history = await owner.call("chat.history", {"sessionKey": key})
        assert [message["role"] for message in history["messages"]] == ["user", "assistant"]
        assert history["messages"][1]["content"][0]["text"] == "heard"

    async def test_what_was_said_is_heard_once(self, owner: WireClient, node: ScriptedNode) -> None:
        for _ in range(2):
            await node.tell("voice.transcript", {"text": "say=spoken", "eventId": "e1"})
        await owner.event(lambda e: e["event"] == "chat" and e["payload"]["state"] == "final")
        history = await owner.call("chat.history", {"sessionKey": "main"})
        assert [message["role"] for message in history["messages"]] == ["user", "assistant"]
        await node.tell("voice.transcript", {"text": "  "})

    async def test_only_sessions_of_its_person(self, gateway: RunningGateway, node: ScriptedNode) -> None:
        user, _ = await add_person(gateway, Role.USER)
        for event, payload in (
            ("agent.request", {"message": "say=x"}),
            ("voice.transcript", {"text": "say=x"}),
            ("chat.subscribe", {}),
            ("exec.finished", {}),
        ):
            with pytest.raises(Refused, match="no session found"):
                await node.tell(event, payload | {"sessionKey": f"user:{user}:agent:main:main"})

    async def test_how_commands_ended_is_told_the_main_session(
        self, gateway: RunningGateway, owner: WireClient, node: ScriptedNode
    ) -> None:
        await node.tell("exec.started", {"sessionKey": "main", "runId": "r", "command": "make"})
        finished = {"sessionKey": "agent:main:main", "runId": "r", "exitCode": 2, "output": "x" * 5000 + "end"}
        await node.tell("exec.finished", finished)
        await node.tell("exec.denied", {"sessionKey": "main", "reason": "user-denied"})
        await node.tell("exec.finished", {"sessionKey": "node", "exitCode": 0})  # nobody's main session
        queued = (await owner.call("status"))["queuedSystemEvents"]
        assert queued[0] == "Exec started (node=Pantry id=r): make"
        assert queued[1].startswith("Exec finished (node=Pantry id=r, code 2) | xxx") and queued[1].endswith("end")
        assert queued[2] == "Exec denied (node=Pantry, user-denied)"
        assert len(queued) == 3 and len(queued[1]) < 2100

    async def test_copies_of_a_session(self, owner: WireClient, node: ScriptedNode) -> None:
        await node.tell("chat.subscribe", {"sessionKey": "garden"})
        for key, run_id in (("garden", "r1"), ("other", "r2")):
            await owner.call("chat.send", {"sessionKey": key, "message": "say=hello", "idempotencyKey": run_id})
            await owner.chat_end(run_id)
        end = await node.client.chat_end("r1")
        assert end["sessionKey"] == "garden"
        await node.client.call("health")
        copies = [event for event in node.client.events if event["event"] in ("chat", "agent")]
        assert {event["payload"]["runId"] for event in copies} == {"r1"}
        assert not any("seq" in event for event in copies)
        await node.tell("chat.unsubscribe", {"sessionKey": "garden"})
        await owner.call("chat.send", {"sessionKey": "garden", "message": "say=more", "idempotencyKey": "r3"})
        await owner.chat_end("r3")
        await node.client.call("health")
        assert "r3" not in json.dumps(node.client.events)

    async def test_what_it_makes_no_sense_of(self, node: ScriptedNode) -> None:
        assert await node.client.call("node.event", {"event": "push.apns.register", "payload": {"token": "x"}})
        assert await node.client.call("node.event", {"event": "no.such", "payloadJSON": None})
        for event, payload in (("agent.request", None), ("agent.request", {"message": 5}), ("chat.subscribe", [])):
            with pytest.raises(Refused, match=f"^invalid {event} params: "):
                await node.tell(event, payload)
        with pytest.raises(Refused):
            await node.client.call("node.event", {"event": "agent.request", "payloadJSON": "["})


async def test_nothing_is_left_of_nodes_that_came_and_went(gateway: RunningGateway, owner: WireClient) -> None:
    device = DeviceIdentity.generate()
    for _ in range(20):
        async with connected_node(gateway, device=device) as node:
            await ask(owner, node)
            await node.asked()
            await node.tell("chat.subscribe", {"sessionKey": "main"})
    broadcaster = gateway.app.gateway.broadcaster
    await until(lambda: len(broadcaster) == 1, "the nodes are gone")
    assert broadcaster._subscribers == {} == broadcaster._subscribed
    await asyncio.sleep(0)
    assert (await owner.call("node.list"))["nodes"][0]["connected"] is False
