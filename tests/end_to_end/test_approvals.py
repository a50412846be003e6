"""Risky tool calls of people who need somebody's yes: asked, waited for, decided in every way, and carried out once
(docs/people.md, "Approvals")."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skynet_memory.ids import Role
from skynet_users.guardians import GuardianStore
from skynet_users.people import UserChanges, UserStore
from tests.end_to_end.scene import MAIN, add_person, answer, files_of, send, text, tool
from tests.skynet.cli.conftest import environment
from tests.support.client import Refused, WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer
from tests.support.polling import until

WRITE = f"{tool('write_file', path='a.txt', content='hello')} next-round say=done"
OTHER = f"{tool('write_file', path='b.txt', content='hello')} next-round say=done"
AT_ONCE = "[approvals]\nwait_s = 0\n"
DAY_MS = 86_400_000


@dataclass
class Person:
    id: str
    token: str
    client: WireClient


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def gateway(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    """Where a call waits as long as a test takes."""
    async with running_gateway(tmp_path, models=models, toml="[approvals]\nwait_s = 600\n") as running:
        yield running


@pytest.fixture
async def impatient(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    """Where no call waits."""
    async with running_gateway(tmp_path, models=models, toml=AT_ONCE) as running:
        yield running


@asynccontextmanager
async def somebody(gateway: RunningGateway, role: Role, name: str, **profile: Any) -> AsyncIterator[Person]:
    """A person who is connected."""
    user, token = await add_person(gateway, role, name)
    if profile:
        await UserStore(gateway.app.database).set(user, UserChanges(**profile))
    async with gateway.client(token=token) as client:
        yield Person(user, token, client)


def ben_of(gateway: RunningGateway) -> Any:
    """An adult whose risky calls need an approval."""
    return somebody(gateway, Role.USER, "Ben", requires_approval=True)


def events(client: WireClient, name: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in client.events if event["event"] == name]


async def requested(client: WireClient) -> dict[str, Any]:
    """The question that a client is told of first."""
    event = await client.event(lambda each: each["event"] == "approvals.requested")
    approval: dict[str, Any] = event["payload"]["approval"]
    return approval


async def pending(client: WireClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.call("approvals.list", {"status": "pending"}))["approvals"]
    return found


def result_of(models: ModelServer) -> str:
    """What the model was told last of a tool call."""
    last = models.bodies[-1]["messages"][-1]
    assert last["role"] == "tool", last
    result: str = last["content"]
    return result


async def settle(*clients: WireClient) -> None:
    """All that was sent to them has come."""
    await asyncio.gather(*(client.call("health") for client in clients))


async def age(gateway: RunningGateway, ms: int) -> None:
    """Every question was asked, and decided, so much earlier."""
    await gateway.app.database.write(
        lambda tx: tx.execute(
            "UPDATE approvals SET created_at_ms = created_at_ms - ?, expires_at_ms = expires_at_ms - ?", (ms, ms)
        )
    )


async def command_line(gateway: RunningGateway, home: Path, *arguments: str) -> tuple[int, str]:
    """Run ``skynet users …`` as the owner; its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skynet.cli", "users", *arguments, "--url", gateway.url, "--token", gateway.token),
        env=environment(home),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


# Deciding


@pytest.mark.parametrize("way", ["websocket", "command line", "conversation"])
async def test_a_risky_call_waits_for_a_yes(
    tmp_path: Path, gateway: RunningGateway, models: ModelServer, way: str
) -> None:
    """SK-129, SK-131: and is carried out as soon as there is one."""
    async with ben_of(gateway) as ben, gateway.client() as owner:
        run_id = await send(ben.client, WRITE)
        question = await requested(owner)
        assert (question["kind"], question["requester"], question["requesterName"]) == ("tool_call", ben.id, "Ben")
        assert question["subject"] == {"tool": "write_file", "arguments": {"path": "a.txt", "content": "hello"}}
        assert question["decidable"] and not question["mine"]
        assert not (files_of(tmp_path, ben.id) / "a.txt").exists() and models.asked == 1
        ending = question["id"][-8:]
        if way == "websocket":
            decided = await owner.call("approvals.decide", {"id": question["id"], "approve": True})
            assert decided["approval"]["status"] == "approved"
        elif way == "command line":
            code, said = await command_line(gateway, tmp_path / "other", "approvals")
            assert code == 0 and ending in said and "Ben" in said
            code, said = await command_line(gateway, tmp_path / "other", "approve", ending)
            assert code == 0 and said.startswith("approved: write_file"), said
        else:
            assert f"{ending} - Ben: write_file" in await answer(owner, "/approvals")
            assert (await answer(owner, f"/approve {ending}")).startswith("Approved: write_file")
            assert models.asked == 1, "a command is no message to a model"
        end = await ben.client.chat_end(run_id)
        assert text(end["message"]) == "done"
        assert (files_of(tmp_path, ben.id) / "a.txt").read_text() == "hello"
        resolved = (await ben.client.event(lambda each: each["event"] == "approvals.resolved"))["payload"]
        assert (resolved["id"], resolved["status"]) == (question["id"], "approved")
        (stored,) = (await owner.call("approvals.list", {"status": "used"}))["approvals"]
        assert stored["id"] == question["id"]
        actions = [each["action"] for each in (await owner.call("audit.list"))["entries"]]
        wanted = ("approval.used", "approval.decided", "approval.requested")
        assert [action for action in actions if action.startswith("approval.")] == [*wanted]


@pytest.mark.parametrize("way", ["websocket", "command line", "conversation"])
async def test_a_no_and_its_reason_reach_the_model_and_the_person(
    tmp_path: Path, gateway: RunningGateway, models: ModelServer, way: str
) -> None:
    """SK-131."""
    reason = "not on a Sunday"
    async with ben_of(gateway) as ben, gateway.client() as owner:
        run_id = await send(ben.client, WRITE)
        question = await requested(owner)
        if way == "websocket":
            await owner.call("approvals.decide", {"id": question["id"], "approve": False, "reason": reason})
        elif way == "command line":
            code, said = await command_line(gateway, tmp_path / "other", "deny", question["id"], "--reason", reason)
            assert code == 0 and said.startswith("denied: write_file")
        else:
            assert (await answer(owner, f"/deny {question['id'][-8:]} {reason}")).startswith("Denied: write_file")
        await ben.client.chat_end(run_id)
        assert result_of(models) == f"not carried out: denied: {reason}"
        resolved = (await ben.client.event(lambda each: each["event"] == "approvals.resolved"))["payload"]
        assert (resolved["status"], resolved["reason"]) == ("denied", reason)
        (mine,) = (await ben.client.call("approvals.list"))["approvals"]
        assert (mine["status"], mine["reason"], mine["mine"], mine["decidable"]) == ("denied", reason, True, False)
        assert not (files_of(tmp_path, ben.id) / "a.txt").exists()
        with pytest.raises(Refused) as late:
            await owner.call("approvals.decide", {"id": question["id"], "approve": True})
        assert late.value.error["details"]["status"] == "denied"


async def test_a_yes_is_for_one_run_of_exactly_this_call(
    tmp_path: Path, gateway: RunningGateway, models: ModelServer
) -> None:
    """SK-131."""
    async with ben_of(gateway) as ben, gateway.client() as owner:
        first = await send(ben.client, WRITE)
        await owner.call("approvals.decide", {"id": (await requested(owner))["id"], "approve": True})
        await ben.client.chat_end(first)
        for message, path in ((WRITE, "a.txt"), (OTHER, "b.txt")):
            run_id = await send(ben.client, message)
            await until(lambda: len(models.bodies) and models.bodies[-1]["messages"][-1]["role"] == "user")
            async with asyncio.timeout(10):
                while not (questions := await pending(owner)):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            (question,) = questions
            assert question["subject"]["arguments"]["path"] == path
            await owner.call("approvals.decide", {"id": question["id"], "approve": False})
            await ben.client.chat_end(run_id)
        assert not (files_of(tmp_path, ben.id) / "b.txt").exists()


async def test_of_two_equal_calls_at_once_a_yes_is_for_one(
    tmp_path: Path, gateway: RunningGateway, models: ModelServer
) -> None:
    """SK-131: and the other is not called denied."""
    patch = tool("patch_file", path="a.txt", old_text="a", new_text="aa")
    async with ben_of(gateway) as ben, gateway.client() as owner:
        files_of(tmp_path, ben.id).mkdir(parents=True)
        (files_of(tmp_path, ben.id) / "a.txt").write_text("a")
        run_id = await send(ben.client, f"{patch} {patch} next-round say=done")
        question = await requested(owner)
        await owner.call("approvals.decide", {"id": question["id"], "approve": True, "reason": "fine"})
        await ben.client.chat_end(run_id)
        assert (files_of(tmp_path, ben.id) / "a.txt").read_text() == "aa"
        results = sorted(each["content"] for each in models.bodies[-1]["messages"] if each["role"] == "tool")
        assert results[0].startswith("a.txt: replaced 1 passage"), results
        assert results[1] == "not carried out: denied: it was approved for one run, which another call has used"
        assert await pending(owner) == []


async def test_what_is_not_risky_asks_nobody(gateway: RunningGateway, models: ModelServer) -> None:
    async with ben_of(gateway) as ben, somebody(gateway, Role.USER, "Anna") as anna, gateway.client() as owner:
        await answer(ben.client, f"{tool('list_files')} next-round say=done")
        await answer(anna.client, WRITE)  # who needs no approval
        await answer(ben.client, f"{tool('write_file', path='', content='x')} next-round say=done")
        assert "path" in result_of(models), "what cannot be run needs no question"
        await settle(owner)
        assert not events(owner, "approvals.requested")


# Who waits


async def test_without_waiting_it_is_pending_and_works_once_after_the_yes(
    tmp_path: Path, impatient: RunningGateway, models: ModelServer
) -> None:
    """SK-131."""
    async with ben_of(impatient) as ben, impatient.client() as owner:
        assert (await answer(ben.client, WRITE)).endswith("done")
        assert "still open" in result_of(models)
        await answer(ben.client, WRITE)
        (question,) = await pending(owner)  # asked twice, one question
        await owner.call("approvals.decide", {"id": question["id"], "approve": True, "reason": "fine"})
        assert not (files_of(tmp_path, ben.id) / "a.txt").exists(), "nobody runs it behind the person's back"
        await answer(ben.client, "say=hello")
        assert "Approved: write_file" in json.dumps(models.bodies[-1]), "the assistant knows that it works now"
        await answer(ben.client, WRITE)
        assert (files_of(tmp_path, ben.id) / "a.txt").read_text() == "hello"
        await answer(ben.client, WRITE)
        assert "still open" in result_of(models)


async def test_the_run_that_waits_can_be_stopped(tmp_path: Path, gateway: RunningGateway, models: ModelServer) -> None:
    """And what it asked for can still be decided; nothing runs by itself then."""
    async with ben_of(gateway) as ben, gateway.client() as owner:
        run_id = await send(ben.client, WRITE)
        question = await requested(owner)
        stopped = await ben.client.call("chat.abort", {"sessionKey": MAIN, "runId": run_id})
        assert stopped["runIds"] == [run_id]
        assert (await ben.client.chat_end(run_id))["state"] == "aborted"
        assert [each["id"] for each in await pending(owner)] == [question["id"]]
        await owner.call("approvals.decide", {"id": question["id"], "approve": True})
        assert await answer(ben.client, "say=hello") == "hello"
        assert not (files_of(tmp_path, ben.id) / "a.txt").exists()
        assert (await answer(ben.client, WRITE)).endswith("done")
        assert (files_of(tmp_path, ben.id) / "a.txt").exists()


async def test_disabling_the_person_ends_the_waiting(
    tmp_path: Path, gateway: RunningGateway, models: ModelServer
) -> None:
    async with ben_of(gateway) as ben, gateway.client() as owner:
        await send(ben.client, WRITE)
        question = await requested(owner)
        await owner.call("users.set", {"userId": ben.id, "disabled": True})
        await ben.client.closed()
        await owner.call("approvals.decide", {"id": question["id"], "approve": True})
        await settle(owner)
        assert not (files_of(tmp_path, ben.id) / "a.txt").exists()
        assert models.asked == 1


async def test_a_run_that_was_begun_without_approvals_ends_with_the_freedom(
    tmp_path: Path, gateway: RunningGateway, models: ModelServer
) -> None:
    """SK-129: the next message is under them."""
    async with somebody(gateway, Role.USER, "Ben") as ben, gateway.client() as owner:
        await send(ben.client, "say=I am thinking hang")
        await until(lambda: models.asked == 1)
        await owner.call("users.set", {"userId": ben.id, "requiresApproval": True})
        assert await ben.client.closed() == (1008, "permissions changed")
        await until(lambda: models.disconnects == 1)
        async with gateway.client(token=ben.token) as client:
            await send(client, WRITE)
            assert (await requested(owner))["requester"] == ben.id
        assert not (files_of(tmp_path, ben.id) / "a.txt").exists()


# Time


async def test_a_question_is_open_for_a_day_and_a_yes_good_for_one(
    tmp_path: Path, impatient: RunningGateway, models: ModelServer
) -> None:
    """SK-131."""
    async with ben_of(impatient) as ben, impatient.client() as owner:
        await answer(ben.client, WRITE)
        (question,) = await pending(owner)
        await age(impatient, DAY_MS)
        assert await pending(owner) == []
        with pytest.raises(Refused) as late:
            await owner.call("approvals.decide", {"id": question["id"], "approve": True})
        assert late.value.error["details"]["status"] == "expired"
        await answer(ben.client, WRITE)
        (again,) = await pending(owner)
        assert again["id"] != question["id"]
        await owner.call("approvals.decide", {"id": again["id"], "approve": True})
        await age(impatient, DAY_MS)
        await answer(ben.client, WRITE)
        assert "still open" in result_of(models)
        assert not (files_of(tmp_path, ben.id) / "a.txt").exists()


async def test_a_restart_between_question_and_answer_loses_neither(tmp_path: Path, models: ModelServer) -> None:
    """SK-131."""
    async with running_gateway(tmp_path, models=models) as first, ben_of(first) as ben, first.client() as owner:
        await send(ben.client, WRITE)
        question = await requested(owner)
    async with (
        running_gateway(tmp_path, models=models, toml=AT_ONCE) as second,
        second.client(token=ben.token) as client,
        second.client() as owner,
    ):
        assert [each["id"] for each in await pending(owner)] == [question["id"]]
        await owner.call("approvals.decide", {"id": question["id"], "approve": True})
        assert not (files_of(tmp_path, ben.id) / "a.txt").exists()
    async with running_gateway(tmp_path, models=models, toml=AT_ONCE) as third:
        async with third.client(token=ben.token) as client:
            assert (await answer(client, WRITE)).endswith("done")
        assert (files_of(tmp_path, ben.id) / "a.txt").read_text() == "hello"


# Who decides


async def test_of_two_admins_at_once_one_decides_and_the_other_is_told(
    tmp_path: Path, gateway: RunningGateway, models: ModelServer
) -> None:
    """SK-131."""
    async with ben_of(gateway) as ben, gateway.client() as owner, somebody(gateway, Role.ADMIN, "Olga") as olga:
        for number in range(5):
            path = f"{number}.txt"
            run_id = await send(ben.client, f"{tool('write_file', path=path, content='x')} next-round say=done")
            event = await olga.client.event(
                lambda each, path=path: (
                    each["event"] == "approvals.requested"
                    and each["payload"]["approval"]["subject"]["arguments"]["path"] == path
                )
            )
            approval_id = event["payload"]["approval"]["id"]
            outcomes = await asyncio.gather(
                owner.call("approvals.decide", {"id": approval_id, "approve": True}),
                olga.client.call("approvals.decide", {"id": approval_id, "approve": False, "reason": "no"}),
                return_exceptions=True,
            )
            (lost,) = [each for each in outcomes if isinstance(each, Refused)]
            (won,) = [each for each in outcomes if isinstance(each, dict)]
            status = won["approval"]["status"]
            assert lost.error["details"]["status"] in (status, "used")
            await ben.client.chat_end(run_id)
            assert (files_of(tmp_path, ben.id) / path).exists() == (status == "approved")
            entries = (await owner.call("audit.list", {"action": "approval.decided"}))["entries"]
            recorded = [each["details"]["approved"] for each in entries if each["subject"] == approval_id]
            assert recorded == [status == "approved"]


async def test_those_concerned_are_told_and_nobody_else(gateway: RunningGateway, models: ModelServer) -> None:
    """SK-131: admins and the person; not other people, who may not see or decide it either."""
    async with (
        ben_of(gateway) as ben,
        somebody(gateway, Role.USER, "Carl") as carl,
        somebody(gateway, Role.ADMIN, "Olga") as olga,
        gateway.client() as owner,
    ):
        run_id = await send(ben.client, WRITE)
        question = await requested(owner)
        assert (await requested(olga.client))["id"] == question["id"]
        for person in (ben, carl):
            with pytest.raises(Refused):
                await person.client.call("approvals.decide", {"id": question["id"], "approve": True})
            said = await answer(person.client, f"/approve {question['id'][-8:]}", key="agent:main:other")
            assert not said.startswith("Approved")
        assert (await carl.client.call("approvals.list"))["approvals"] == []
        await olga.client.call("approvals.decide", {"id": question["id"], "approve": False})
        await ben.client.chat_end(run_id)
        for client in (owner, olga.client, ben.client):
            await client.event(lambda each: each["event"] == "approvals.resolved")
        await settle(carl.client, ben.client)
        assert not events(ben.client, "approvals.requested"), "nobody decides what they asked for"
        assert not events(carl.client, "approvals.requested") and not events(carl.client, "approvals.resolved")
        assert question["id"] not in json.dumps([each for each in carl.client.events if each["event"] != "chat"])


async def test_guardians_decide_for_their_child_and_for_no_other(
    tmp_path: Path, gateway: RunningGateway, models: ModelServer
) -> None:
    """SK-131."""
    flags = {"files.write": True, "files.read": True}
    child = {"requires_approval": True, "flags": flags}
    async with (
        somebody(gateway, Role.CHILD, "Mia", **child) as mia,
        somebody(gateway, Role.CHILD, "Tom", **child) as tom,
        somebody(gateway, Role.USER, "Anna") as anna,
        somebody(gateway, Role.USER, "Carl") as carl,
    ):
        guardians = GuardianStore(gateway.app.database)
        await guardians.set(mia.id, anna.id)
        await guardians.set(tom.id, carl.id)
        run_id = await send(mia.client, WRITE)
        question = await requested(anna.client)
        assert question["requesterName"] == "Mia" and question["decidable"]
        with pytest.raises(Refused, match="unknown approval"):
            await carl.client.call("approvals.decide", {"id": question["id"], "approve": True})
        with pytest.raises(Refused):
            await tom.client.call("approvals.decide", {"id": question["id"], "approve": True})
        assert (await answer(anna.client, f"/approve {question['id'][-8:]}")).startswith("Approved")
        await mia.client.chat_end(run_id)
        assert (files_of(tmp_path, mia.id) / "a.txt").read_text() == "hello"
        await settle(carl.client, tom.client)
        for client in (carl.client, tom.client):
            assert not events(client, "approvals.requested") and not events(client, "approvals.resolved")


async def test_a_child_asks_and_its_guardian_answers(gateway: RunningGateway) -> None:
    """SK-131: what is asked in words, and not twice."""
    async with somebody(gateway, Role.CHILD, "Mia") as mia, somebody(gateway, Role.USER, "Anna") as anna:
        await GuardianStore(gateway.app.database).set(mia.id, anna.id)
        asked = await mia.client.call("approvals.request", {"summary": "May I stay up until ten?"})
        assert asked["created"] and not asked["approval"]["decidable"]
        assert (await requested(anna.client))["summary"] == "May I stay up until ten?"
        again = await mia.client.call("approvals.request", {"summary": "May I stay up until ten?"})
        assert not again["created"] and again["approval"]["id"] == asked["approval"]["id"]
        with pytest.raises(Refused):
            await mia.client.call("approvals.decide", {"id": asked["approval"]["id"], "approve": True})
        await anna.client.call("approvals.decide", {"id": asked["approval"]["id"], "approve": True, "reason": "today"})
        resolved = (await mia.client.event(lambda each: each["event"] == "approvals.resolved"))["payload"]
        assert (resolved["status"], resolved["reason"]) == ("approved", "today")
