"""Attacks on the approvals of commands, over the wire of a whole gateway: somebody else decides, a decision is played
again, what runs is not what was shown (docs/approvals.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from skynet.gateway.command_gate import ExecQuestion
from skynet.gateway.exec_approvals import ExecApprovals
from skynet_memory.ids import ConnId, Role, UserId
from skynet_protocol.device import DeviceIdentity
from skynet_terminal.errors import CommandBlocked
from skynet_users.guardians import GuardianStore
from skynet_users.people import UserChanges, UserStore
from tests.end_to_end.scene import add_person, answer, owner_of, send, tool
from tests.support.client import Refused, WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer
from tests.support.programs import needs

UNKNOWN = r"^unknown approval id$"
ADMIN_DECIDES = '[terminal.approver]\nuser = "admin"\n'
REMOVE = ExecQuestion(
    command="rm -r build", commands=(("rm", "-r", "build"),), cwd="/files", rule="r", reason="it removes"
)


@dataclass
class Person:
    id: UserId
    token: str
    clients: list[WireClient] = field(default_factory=list)

    @property
    def client(self) -> WireClient:
        return self.clients[0]


@dataclass
class House:
    """``ada`` is the owner; ``cid`` a child whose guardian is ``gwen``."""

    gateway: RunningGateway
    people: dict[str, Person]

    def __getattr__(self, name: str) -> Person:
        return self.people[name]

    @property
    def approvals(self) -> ExecApprovals:
        """The parts of the gateway that no method of the wire reaches."""
        methods = self.gateway.app.gateway.dispatcher._table
        found = methods["exec.approval.list"].call.__self__._approvals
        assert isinstance(found, ExecApprovals)
        return found

    async def users_ask(self, person: Person, question: ExecQuestion = REMOVE) -> Any:
        """As the gate of commands asks, for somebody's assistant."""
        user = await UserStore(self.gateway.app.database).get(person.id)
        return await self.approvals.ask(user, question)


async def open_house(home: Path, stack: AsyncExitStack, toml: str = "") -> House:
    models = await stack.enter_async_context(ModelServer())
    gateway = await stack.enter_async_context(
        running_gateway(home, models=models, toml=f"[approvals]\nwait_s = 0.05\n{toml}")
    )
    people = {"ada": Person(UserId(await owner_of(gateway)), gateway.token)}
    roles = {"ben": Role.USER, "eve": Role.USER, "gwen": Role.USER, "bob": Role.ADMIN, "cid": Role.CHILD}
    for name, role in roles.items():
        user_id, token = await add_person(gateway, role, name)
        people[name] = Person(UserId(user_id), token)
    await GuardianStore(gateway.app.database).set(people["cid"].id, people["gwen"].id)
    for person in people.values():
        for device in (None, DeviceIdentity.generate()):
            client = gateway.client(token=person.token, device=device)
            person.clients.append(await stack.enter_async_context(client))
    return House(gateway, people)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        yield await open_house(tmp_path, stack)


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[House]:
    """Where admins decide about users' commands."""
    async with AsyncExitStack() as stack:
        yield await open_house(tmp_path, stack, ADMIN_DECIDES)


async def requested(client: WireClient, approval_id: str) -> dict[str, Any]:
    event = await client.event(lambda e: e["event"] == "exec.approval.requested" and e["payload"]["id"] == approval_id)
    payload: dict[str, Any] = event["payload"]
    return payload


async def begin(client: WireClient, **params: Any) -> str:
    """Ask in two steps; the id of the request frame, whose second answer is the decision."""
    values = {"command": "ls -l", "commandArgv": ["ls", "-l"], "twoPhase": True, "timeoutMs": 60_000}
    request_id = await client.send_frame("exec.approval.request", values | params)
    first = await client.response(request_id)
    assert first["ok"] and first["payload"]["status"] == "accepted", first
    return request_id


def events_of(person: Person) -> list[dict[str, Any]]:
    return [e for client in person.clients for e in client.events if e["event"].startswith("exec.")]


async def settle(house: House) -> None:
    for person in house.people.values():
        for client in person.clients:
            await client.call("ping")


async def test_nobody_else_decides_or_hears_of_it(house: House) -> None:
    """SK-094: another person, an admin, a guardian and a child try."""
    request_id = await begin(house.ben.clients[1], id="mine")
    await requested(house.ben.client, "mine")
    for name in ("eve", "bob", "ada", "gwen"):
        with pytest.raises(Refused, match=UNKNOWN):
            await house.people[name].client.call("exec.approval.resolve", {"id": "mine", "decision": "allow-once"})
        with pytest.raises(Refused, match=r"^approval expired or not found$"):
            await house.people[name].client.call("exec.approval.waitDecision", {"id": "mine"})
        assert (await house.people[name].client.call("exec.approval.list"))["approvals"] == []
    with pytest.raises(Refused, match=r"missing scope: operator\.approvals"):
        await house.cid.client.call("exec.approval.resolve", {"id": "mine", "decision": "allow-once"})
    async with house.gateway.client(token=house.ben.token, scopes=("operator.read", "operator.write")) as narrow:
        with pytest.raises(Refused, match=r"missing scope: operator\.approvals"):
            await narrow.call("exec.approval.resolve", {"id": "mine", "decision": "allow-once"})
        assert not [e for e in narrow.events if e["event"].startswith("exec.")]
    await house.ben.client.call("exec.approval.resolve", {"id": "mine", "decision": "allow-once"})
    final = await house.ben.clients[1].response(request_id)
    assert final["payload"]["decision"] == "allow-once"
    await settle(house)
    for name in ("eve", "bob", "ada", "gwen", "cid"):
        assert events_of(house.people[name]) == []


async def test_a_decision_is_used_once(house: House) -> None:
    """It is neither made twice nor good twice, and a client's is bound to its device, node and words."""
    mine = house.ben.clients[1]
    await begin(mine, id="r1", host="node", nodeId="n1")
    assert await house.ben.client.call("exec.approval.resolve", {"id": "r1", "decision": "allow-once"}) == {"ok": True}
    for decision in ("allow-always", "allow-once", "deny"):
        with pytest.raises(Refused, match=UNKNOWN):
            await house.ben.client.call("exec.approval.resolve", {"id": "r1", "decision": decision})
    with pytest.raises(Refused, match=r"^approval id already pending$"):
        await mine.call("exec.approval.request", {"id": "r1", "command": "rm -rf /"})
    devices = [row.device_id for row in house.approvals._asked.values()]
    (device,) = devices
    check = house.approvals.check
    argv, bound = ["ls", "-l"], {"device_id": device}
    assert check(house.eve.id, "r1", "n1", argv, **bound) == "UNKNOWN_APPROVAL_ID"
    assert check(house.ben.id, "r1", "n2", argv, **bound) == "APPROVAL_NODE_MISMATCH"
    assert check(house.ben.id, "r1", "n1", argv, conn_id=ConnId("x")) == "APPROVAL_DEVICE_MISMATCH"
    for changed in (["ls", "-l", "/etc"], ["ls"], ["ls -l"], ["sh", "-c", "ls -l"], []):
        assert check(house.ben.id, "r1", "n1", changed, **bound) == "APPROVAL_REQUEST_MISMATCH"
    assert check(house.ben.id, "r1", "n1", argv, **bound) is None
    assert check(house.ben.id, "r1", "n1", argv, **bound) == "APPROVAL_REQUIRED"


async def test_the_same_text_is_not_the_same_command(house: House) -> None:
    asking = asyncio.ensure_future(house.users_ask(house.ben))
    event = await house.ben.client.event(lambda e: e["event"] == "exec.approval.requested")
    assert event["payload"]["request"]["commandArgv"] == ["rm", "-r", "build"]
    await house.ben.client.call("exec.approval.resolve", {"id": event["payload"]["id"], "decision": "allow-always"})
    assert await asking == "allow-always"
    assert await house.approvals.allows(house.ben.id, [("rm", "-r", "build")])
    for commands in ([("rm", "-r build")], [("rm", "-r", "build", "..")], [("rm", "-r", "Build")], [("rm -r build",)]):
        assert not await house.approvals.allows(house.ben.id, commands), commands
    assert not await house.approvals.allows(house.eve.id, [("rm", "-r", "build")])
    # What a client says of an argv is not what is shown
    await begin(house.ben.client, id="lie", command="ls", commandArgv=["rm", "-rf", "/"])
    assert (await requested(house.ben.client, "lie"))["request"]["command"] == "rm -rf /"


async def test_where_admins_decide_the_person_does_not(strict: House) -> None:
    request_id = await begin(strict.ben.client, id="mine")
    await requested(strict.ada.client, "mine")
    for decision in ("allow-once", "allow-always", "deny"):
        with pytest.raises(Refused, match=r"^somebody else has to decide about this request$") as refused:
            await strict.ben.clients[1].call("exec.approval.resolve", {"id": "mine", "decision": decision})
        assert refused.value.error["details"] == {"code": "FORBIDDEN"}
    listed = (await strict.ben.client.call("exec.approval.list"))["approvals"]
    assert [(each["mine"], each["decidable"]) for each in listed] == [(True, False)]
    with pytest.raises(Refused, match=UNKNOWN):
        await strict.eve.client.call("exec.approval.resolve", {"id": "mine", "decision": "allow-once"})
    assert "has to decide" in await answer(strict.ben.client, "/approve mine allow-once")
    assert await answer(strict.eve.client, "/approve mine allow-once") == "unknown approval: mine"
    assert await answer(strict.bob.client, "/approve mine allow-once") == "Allowed once: ls -l"
    final = await strict.ben.client.response(request_id)
    assert final["payload"]["decision"] == "allow-once"
    await settle(strict)
    assert {e["event"] for e in events_of(strict.ben)} == {"exec.approval.resolved"}
    assert events_of(strict.eve) == events_of(strict.gwen) == events_of(strict.cid) == []
    assert {e["event"] for e in events_of(strict.ada)} == {"exec.approval.requested", "exec.approval.resolved"}


async def test_a_model_cannot_say_yes(house: House) -> None:
    """What the assistant answers is no command of the person's."""
    absent = Person(UserId((await add_person(house.gateway, Role.USER))[0]), "")
    with pytest.raises(CommandBlocked, match="this person has to allow it, with /approve"):
        await house.users_ask(absent)
    assert (await house.ben.client.call("exec.approval.list"))["approvals"] == []
    await begin(house.ben.client, id="mine-12345678")
    await answer(house.ben.client, "say=/approve mine-12345678 allow-once")
    assert [each["id"] for each in (await house.ben.client.call("exec.approval.list"))["approvals"]] == [
        "mine-12345678"
    ]
    assert await answer(house.ben.client, "/approve 12345678 allow-once") == "Allowed once: ls -l"


async def test_rights_that_are_withdrawn_end_it(house: House) -> None:
    await begin(house.ben.client, id="mine")
    asking = asyncio.ensure_future(house.users_ask(house.ben))
    await house.ben.client.event(
        lambda e: e["event"] == "exec.approval.requested" and e["payload"]["request"]["command"] == "rm -r build"
    )
    await house.ada.client.call("users.set", {"userId": house.ben.id, "flags": {"commands.run": False}})
    assert await asking == "deny"
    async with house.gateway.client(token=house.ben.token) as again:
        assert (await again.call("exec.approval.list"))["approvals"] == []
        with pytest.raises(Refused, match=r"^not permitted: commands\.run$"):
            await again.call("exec.approval.request", {"command": "ls"})


async def test_who_leaves_takes_the_question_along_unless_they_come_back(house: House) -> None:
    async with house.gateway.client(token=house.ben.token) as leaving:
        request = {"id": "one", "command": "ls", "timeoutMs": 60_000}
        await leaving.send_frame("exec.approval.request", request)
        await requested(house.ben.client, "one")
        await begin(leaving, id="two")
    resolved = await house.ben.client.event(lambda e: e["event"] == "exec.approval.resolved")
    assert (resolved["payload"]["id"], resolved["payload"]["decision"], resolved["payload"]["resolvedBy"]) == (
        "one",
        "deny",
        None,
    )
    waiting = await house.ben.clients[1].send_frame("exec.approval.waitDecision", {"id": "two"})
    await house.ben.client.call("exec.approval.resolve", {"id": "two", "decision": "deny"})
    assert (await house.ben.clients[1].response(waiting))["payload"]["decision"] == "deny"


async def test_every_decision_is_on_record_without_the_command(house: House) -> None:
    await begin(house.ben.client, id="mine", command="x", commandArgv=["cat", "quagga-secret"])
    await house.ben.client.call("exec.approval.resolve", {"id": "mine", "decision": "allow-always"})
    (grant,) = (await house.ben.client.call("exec.approval.grants"))["grants"] or [{"id": ""}]
    entries = (await house.ada.client.call("audit.list", {"subject": "mine"}))["entries"]
    assert [(each["action"], each["actor"]) for each in entries] == [
        ("approval.decided", house.ben.id),
        ("approval.requested", house.ben.id),
    ]
    assert entries[0]["details"]["decision"] == "allow-always"
    assert "quagga" not in json.dumps(entries)
    assert grant["id"] == "", "without a place it is allowed for, nothing is allowed for good"


async def test_a_child_decides_nothing(house: House) -> None:
    """Not even with a flag that somebody set by mistake."""
    users = UserStore(house.gateway.app.database)
    await users.set(house.cid.id, UserChanges(flags={"approvals.decide": True, "commands.run": True}))
    house.gateway.app.resolver.forget()
    asking = asyncio.ensure_future(house.users_ask(house.cid))
    event = await house.gwen.client.event(lambda e: e["event"] == "exec.approval.requested")
    approval_id = event["payload"]["id"]
    async with house.gateway.client(token=house.cid.token) as again:
        with pytest.raises(Refused, match=r"missing scope|not permitted"):
            await again.call("exec.approval.resolve", {"id": approval_id, "decision": "allow-once"})
        said = await answer(again, f"/approve {approval_id[-8:]} allow-once")
        assert "missing scope" in said or "permission" in said
    assert not asking.done()
    await house.gwen.client.call("exec.approval.resolve", {"id": approval_id, "decision": "deny"})
    assert await asking == "deny"


async def test_the_gateway_stops_with_questions_open(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        house = await open_house(tmp_path, stack)
        await house.ben.client.send_frame("exec.approval.request", {"id": "open", "command": "ls"})
        await requested(house.ben.client, "open")
        await begin(house.ben.client, id="open in two")


SSH = "ssh -V nowhere.invalid"
"""The policy asks about it, and it does nothing."""


@needs("bwrap")
async def test_a_command_runs_once_it_was_allowed_and_every_time_if_for_good(house: House) -> None:
    """SK-094, SP-121: through the whole of it, from the command to its exit code."""
    ben = house.ben
    denied = await ben.client.send_frame("terminal.exec", {"command": SSH})
    first = await ben.clients[1].event(lambda e: e["event"] == "exec.approval.requested")
    assert first["payload"]["request"]["command"] == SSH
    await ben.clients[1].call("exec.approval.resolve", {"id": first["payload"]["id"], "decision": "deny"})
    error = (await ben.client.response(denied))["error"]
    assert error["details"]["code"] == "COMMAND_BLOCKED" and "it was not allowed" in error["message"], error
    allowed = await ben.client.send_frame("terminal.exec", {"command": SSH})
    second = await ben.clients[1].event(
        lambda e: e["event"] == "exec.approval.requested" and e["payload"]["id"] != first["payload"]["id"]
    )
    await ben.clients[1].call("exec.approval.resolve", {"id": second["payload"]["id"], "decision": "allow-always"})
    ran = await ben.client.response(allowed)
    assert ran["ok"] and isinstance(ran["payload"]["exitCode"], int), ran
    again = await ben.client.call("terminal.exec", {"command": SSH})
    assert again["exitCode"] == ran["payload"]["exitCode"]
    assert [each["uses"] for each in (await ben.client.call("exec.approval.grants"))["grants"]] == [1]
    # Not anything like it, and nobody else
    for person, command in ((ben, f"{SSH} more"), (house.eve, SSH)):
        request = await person.client.send_frame("terminal.exec", {"command": command})
        event = await person.clients[1].event(
            lambda e, command=command: (
                e["event"] == "exec.approval.requested"
                and e["payload"]["request"]["command"] == command
                and e["payload"]["id"] not in (first["payload"]["id"], second["payload"]["id"])
            )
        )
        await person.clients[1].call("exec.approval.resolve", {"id": event["payload"]["id"], "decision": "deny"})
        assert not (await person.client.response(request))["ok"]


@needs("bwrap")
async def test_an_assistant_waits_and_the_house_may_forbid(house: House) -> None:
    ben = house.ben
    run_id = await send(ben.client, f"{tool('execute_command', command=SSH)} next-round say=done")
    event = await ben.clients[1].event(lambda e: e["event"] == "exec.approval.requested")
    assert event["payload"]["request"]["sessionKey"].endswith(":agent:main:main")
    assert await answer(ben.clients[1], f"/approve {event['payload']['id'][-8:]}", key="agent:main:aside") == (
        f"Allowed once: {SSH}"
    )
    assert (await ben.client.chat_end(run_id))["state"] == "final"
    file = {"version": 1, "defaults": {"security": "deny"}}
    await house.ada.client.call("exec.approvals.set", {"file": file})
    with pytest.raises(Refused, match="the house lets nobody run commands"):
        await ben.client.call("terminal.exec", {"command": SSH})
