"""Rooms: one conversation of several people, closed to everybody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skynet_memory.ids import Role, UserId, new_id
from skynet_users.identities import IdentityStore
from skynet_users.people import UserChanges, UserStore
from tests.end_to_end.scene import add_person, answer, files_of, history, say, send, told, tool
from tests.support.channel import FakeChannel
from tests.support.client import Refused, WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer
from tests.support.polling import until


@dataclass
class House:
    """Ada and Ben are in the kitchen. Eve is not, nor is the admin, who made it."""

    home: Path
    gateway: RunningGateway
    models: ModelServer
    admin: WireClient
    ada: WireClient
    ben: WireClient
    eve: WireClient
    ids: dict[str, str]
    tokens: dict[str, str]
    room: str
    key: str

    @property
    def prompts(self) -> list[str]:
        return [json.dumps(body, ensure_ascii=False) for body in self.models.bodies]

    async def join(self, name: str, room: str = "") -> None:
        await self.admin.call("groups.join", {"groupId": room or self.room, "userId": self.ids[name]})

    async def leave(self, name: str) -> None:
        await self.admin.call("groups.leave", {"groupId": self.room, "userId": self.ids[name]})


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with ModelServer() as models, running_gateway(tmp_path, models=models) as gateway, AsyncExitStack() as stack:
        admin = await stack.enter_async_context(gateway.client())
        ids, tokens, clients = {}, {}, {}
        for name in ("Ada", "Ben", "Eve"):
            ids[name], tokens[name] = await add_person(gateway, Role.USER, name)
            clients[name] = await stack.enter_async_context(gateway.client(token=tokens[name], caps=["tool-events"]))
        group = (await admin.call("groups.create", {"name": "Kitchen"}))["group"]
        house = House(
            tmp_path,
            gateway,
            models,
            admin,
            clients["Ada"],
            clients["Ben"],
            clients["Eve"],
            ids,
            tokens,
            group["id"],
            f"group:{group['id']}:agent:main:main",
        )
        await house.join("Ada")
        await house.join("Ben")
        await admin.call("groups.leave", {"groupId": house.room})
        yield house


def chat_events(client: WireClient) -> list[dict[str, Any]]:
    return [event["payload"] for event in client.events if event["event"] in ("chat", "agent")]


async def refusal(client: WireClient, method: str, params: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(Refused) as refused:
        await client.call(method, params)
    return refused.value.error


async def test_two_members_have_one_history(house: House) -> None:
    """BA-263, BA-266: each message says who spoke, and where it came from."""
    assert await answer(house.ada, "say=to both", key=house.key) == "to both"
    assert await answer(house.ben, "what was said?", key=house.key) == "echo: what was said?"
    ours, theirs = await history(house.ada, house.key), await history(house.ben, house.key)
    assert ours == theirs
    assert [role for role, _ in told(ours)] == ["user", "assistant", "user", "assistant"]
    assert [(m["speaker"], m["channel"]) for m in ours if m["role"] == "user"] == [
        ({"id": house.ids["Ada"], "name": "Ada"}, "cli"),
        ({"id": house.ids["Ben"], "name": "Ben"}, "cli"),
    ]
    assert "to both" in house.prompts[1]
    assert await history(house.ada) == await history(house.ben) == [], "their own conversations are untouched"
    (preview,) = (await house.ben.call("sessions.preview", {"keys": [house.key]}))["previews"]
    assert preview["status"] == "ok" and preview["items"][1]["text"] == "to both"
    assert (await house.ada.call("sessions.list"))["count"] == 0


async def test_members_are_told_what_happens_and_nobody_else_is(house: House) -> None:
    """BA-264: under the key that they hold."""
    async with house.gateway.client(token=house.tokens["Ada"]) as second:
        run = await send(house.ada, f"say=done {tool('list_files')}", key=house.key)
        for client in (house.ada, house.ben, second):
            end = await client.chat_end(run)
            assert (end["state"], end["sessionKey"]) == ("final", house.key)
    tools = [e for e in chat_events(house.ada) if e.get("stream") == "tool"]
    assert tools and not [e for e in chat_events(house.ben) if e.get("stream") == "tool"], "only who asked watches"
    assert not chat_events(house.eve) and not chat_events(house.admin)


async def test_for_everybody_else_there_is_no_such_session(house: House) -> None:
    """BA-264: a room reads like one that does not exist, also for admins and for whoever knows its id."""
    await answer(house.ada, "say=secret", key=house.key)
    nowhere = f"group:{new_id()}:agent:main:main"
    for client in (house.eve, house.admin):
        for method, params in (
            ("chat.history", {}),
            ("chat.send", {"message": "hello", "idempotencyKey": "i"}),
            ("chat.abort", {}),
            ("agent", {"message": "hello", "idempotencyKey": "i"}),
            ("sessions.reset", {}),
            ("chat.inject", {"message": "hello"}),
        ):
            name = "key" if method.startswith("sessions.") else "sessionKey"
            errors = [await refusal(client, method, {name: key, **params}) for key in (house.key, nowhere)]
            errors[1]["message"] = errors[1]["message"].replace(nowhere, house.key)
            assert errors[0] == errors[1], method
        previews = (await client.call("sessions.preview", {"keys": [house.key, nowhere]}))["previews"]
        assert [(each["status"], each["items"]) for each in previews] == [("missing", [])] * 2
    assert len(house.models.bodies) == 1


@pytest.mark.parametrize("method", ["sessions.reset", "sessions.delete", "sessions.patch", "sessions.compact"])
async def test_a_member_does_not_change_what_is_everybodys(house: House, method: str) -> None:
    await answer(house.ada, "say=hello", key=house.key)
    await house.admin.call("groups.join", {"groupId": house.room})
    params = {"key": house.key, **({"label": "mine"} if method == "sessions.patch" else {})}
    for member in (house.ada, house.admin):
        assert (await refusal(member, method, params))["details"]["code"] == "NOT_FOUND"
    assert (
        "groups.manage"
        in (await refusal(house.ada, "chat.send", {"sessionKey": house.key, "message": "/new", "idempotencyKey": "i"}))[
            "message"
        ]
    )
    assert len(await history(house.ben, house.key)) == 2


async def test_a_member_sees_what_was_said_since_joining(house: House) -> None:
    """BA-273"""
    await answer(house.ada, "say=before", key=house.key)
    await asyncio.sleep(0.002)  # times are whole milliseconds
    await house.join("Eve")
    assert await history(house.eve, house.key) == []
    (preview,) = (await house.eve.call("sessions.preview", {"keys": [house.key]}))["previews"]
    assert (preview["status"], preview["items"]) == ("empty", [])
    await answer(house.ada, "say=after", key=house.key)
    assert [text for role, text in told(await history(house.eve, house.key)) if role == "assistant"] == ["after"]
    assert len(await history(house.ben, house.key)) == 4


async def test_a_room_may_show_all(house: House) -> None:
    """BA-273: by its policy."""
    group = (await house.admin.call("groups.create", {"name": "Attic", "history": "all"}))["group"]
    key = f"group:{group['id']}:agent:main:main"
    await house.join("Ada", group["id"])
    await answer(house.ada, "say=before", key=key)
    await house.join("Ben", group["id"])
    assert [text for _, text in told(await history(house.ben, key))][1] == "before"


async def test_who_leaves_gets_nothing_from_then_on(house: House) -> None:
    await answer(house.ben, "say=hello", key=house.key)
    run = await send(house.ada, "tokens=3 hang", key=house.key)
    await until(lambda: [e for e in chat_events(house.ben) if e["runId"] == run], "the first words")
    await house.leave("Ben")
    before = len(chat_events(house.ben))
    assert (await house.ada.call("chat.abort", {"sessionKey": house.key, "runId": run}))["aborted"]
    await house.ada.chat_end(run)
    await answer(house.ada, "say=among us", key=house.key)
    await house.ben.call("ping")
    assert len(chat_events(house.ben)) == before
    assert (await refusal(house.ben, "chat.history", {"sessionKey": house.key}))["details"]["code"] == "NOT_FOUND"


async def test_who_is_disabled_is_in_no_room_until_enabled_again(house: House) -> None:
    await house.admin.call("users.set", {"userId": house.ids["Ben"], "disabled": True})
    await house.ben.closed()
    rooms = house.gateway.app.ingress.rooms
    await until(lambda: not rooms.is_member(UserId(house.room), UserId(house.ids["Ben"])))
    await house.admin.call("users.set", {"userId": house.ids["Ben"], "disabled": False})
    await until(lambda: rooms.is_member(UserId(house.room), UserId(house.ids["Ben"])))
    async with house.gateway.client(token=house.tokens["Ben"]) as again:
        assert await answer(again, "say=back", key=house.key) == "back"


async def test_an_inactive_room_keeps_all_and_takes_nothing(house: House) -> None:
    """BA-274"""
    await answer(house.ada, "say=hello", key=house.key)
    await house.admin.call("groups.set", {"groupId": house.room, "active": False})
    for method in ("chat.send", "agent"):
        error = await refusal(
            house.ada, method, {"sessionKey": house.key, "message": "say=hi", "idempotencyKey": method}
        )
        assert error["message"] == "the group Kitchen is not active"
    assert len(await history(house.ada, house.key)) == 2
    await house.admin.call("groups.set", {"groupId": house.room, "active": True})
    assert await answer(house.ada, "say=again", key=house.key) == "again"


async def test_the_agent_method_works_in_a_room(house: House) -> None:
    request = await house.ada.send_frame(
        "agent", {"message": "say=hello", "sessionKey": house.key, "idempotencyKey": "run-1"}
    )
    assert (await house.ada.response(request))["payload"]["status"] == "accepted"
    final = (await house.ada.response(request))["payload"]
    assert final["result"]["payloads"][0]["text"] == "hello"
    waited = await house.ben.call("agent.wait", {"runId": "run-1", "timeoutMs": 5000})
    assert waited["status"] == "ok"
    assert (await house.eve.call("agent.wait", {"runId": "run-1", "timeoutMs": 50}))["status"] == "timeout"


async def test_only_the_rooms_own_memory_is_in_it(house: House) -> None:
    """BA-264: what somebody keeps in private, their files and their profile never come into a room, nor the room's
    to them alone."""
    learn = {"category": "fact"}
    await house.ada.call("memory.learn", {"key": "diary", "value": "PRIVATE-DIARY", **learn})
    await house.ada.call("memory.learn", {"key": "dinner", "value": "ROOM-DINNER", "userId": house.room, **learn})
    await house.admin.call(
        "users.set", {"userId": house.ids["Ada"], "tone": "PRIVATE-TONE", "interests": ["PRIVATE-INTEREST"]}
    )
    files = files_of(house.home, house.ids["Ada"])
    files.mkdir(parents=True, exist_ok=True)
    (files / "private.txt").write_text("PRIVATE-FILE")
    async with house.gateway.client(token=house.tokens["Ada"]) as ada:
        said = await answer(ada, f"{tool('read_file', path='private.txt')}", key=house.key)
        assert "PRIVATE-FILE" not in said
        await answer(ada, f"{tool('write_file', path='shared.txt', content='of the room')}", key=house.key)
        assert "of the room" in await answer(house.ben, f"{tool('read_file', path='shared.txt')}", key=house.key)
        assert "of the room" not in await answer(ada, f"{tool('read_file', path='shared.txt')}")
        assert "PRIVATE-FILE" in await answer(ada, f"{tool('read_file', path='private.txt')}")
    in_room = [prompt for prompt in house.prompts if "# The room you talk in" in prompt]
    alone = [prompt for prompt in house.prompts if "# The room you talk in" not in prompt]
    assert len(in_room) == 6 and len(alone) == 4
    for prompt in in_room:
        assert "ROOM-DINNER" in prompt and "PRIVATE-" not in prompt
    for prompt in alone:
        assert "ROOM-DINNER" not in prompt
    assert any("PRIVATE-DIARY" in prompt for prompt in alone)


async def test_a_rooms_memory_is_its_members(house: House) -> None:
    """BA-264: members read and change it by ``userId``; others need the permission for everybody's."""
    new = {"category": "fact", "key": "dinner", "value": "noodles", "userId": house.room}
    await house.ada.call("memory.learn", new)
    (memory,) = (await house.ben.call("memory.list", {"userId": house.room}))["memories"]
    assert memory["value"] == "noodles"
    for method, params in (("memory.list", {}), ("memory.learn", new), ("memory.export", {}), ("memory.show", {})):
        error = await refusal(house.eve, method, {**params, "userId": house.room})
        assert error["details"]["code"] == "FORBIDDEN"
    await house.leave("Ben")
    assert (await refusal(house.ben, "memory.list", {"userId": house.room}))["details"]["code"] == "FORBIDDEN"


async def test_who_spends_is_who_speaks(house: House) -> None:
    """The person's budget and permissions hold in a room."""
    await answer(house.ada, "say=hello prompt=700", key=house.key)
    cost = await house.ada.call("usage.cost", {"days": 2})
    assert cost["totals"]["totalTokens"] >= 700
    assert (await house.ben.call("usage.cost", {"days": 2}))["totals"]["totalTokens"] == 0
    await house.admin.call("users.set", {"userId": house.ids["Ada"], "dailyTokens": 10})
    error = await refusal(house.ada, "chat.send", {"sessionKey": house.key, "message": "say=hi", "idempotencyKey": "x"})
    assert error["details"]["code"] == "BUDGET_EXCEEDED"
    assert await answer(house.ben, "say=hi", key=house.key) == "hi"


async def test_the_model_is_told_who_speaks(house: House) -> None:
    await answer(house.ada, "hello", key=house.key)
    await answer(house.ben, "[Ada] hello", key=house.key)
    told_users = [message["content"] for message in house.models.bodies[-1]["messages"] if message["role"] == "user"]
    assert len(told_users) == 2
    first, second = (json.dumps(content) for content in told_users)
    assert "[Ada] [" in first and "hello" in first
    assert "[Ben] [" in second and "[Ada] hello" in second
    assert "- Name: Kitchen" in house.prompts[-1]
    stored = [text for role, text in told(await history(house.ada, house.key)) if role == "user"]
    assert stored == ["hello", "[Ada] hello"], "what is stored is what was said"


async def test_a_room_and_a_direct_message_are_apart(house: House) -> None:
    """SK-100, BA-269: on the same channel, each with its own history and memory; the browser shows both."""
    chat = FakeChannel(house.gateway.app.ingress)
    identities = IdentityStore(house.gateway.app.database)
    for name in ("Ada", "Ben"):
        await identities.link(UserId(house.ids[name]), "testchat", name.lower())
    assert await chat.ask("ada", "in private 4711") == "echo: in private 4711"
    assert await chat.ask("ada", "in the room", room="attic") == "echo: in the room"
    assert await chat.ask("ben", "from ben", room="attic") == "echo: from ben"
    assert await chat.ask("ben", "alone") == "echo: alone"
    _, room_ada, room_ben, direct_ben = house.prompts
    assert "4711" not in room_ada + room_ben + direct_ben
    assert "in the room" in room_ben and "in the room" not in direct_ben
    (attic,) = [g for g in (await house.ben.call("groups.list"))["groups"] if g["name"] == "#attic"]
    key = f"group:{attic['id']}:agent:main:main"
    messages = await history(house.ben, key)
    assert [(m["speaker"]["name"], m["channel"]) for m in messages if m["role"] == "user"] == [("Ben", "testchat")]
    assert len(await history(house.ada, key)) == 4
    assert (await refusal(house.eve, "chat.history", {"sessionKey": key}))["details"]["code"] == "NOT_FOUND"
    assert [text for _, text in told(await history(house.ben))] == ["alone", "echo: alone"]
    assert await answer(house.ada, "say=from the browser", key=key) == "from the browser"
    assert chat.heard("attic") == ["echo: in the room", "echo: from ben"]


async def test_members_say_the_same_at_once(house: House) -> None:
    """One lane: each is answered, in some order, and nothing is lost."""
    runs = await asyncio.gather(
        *[send(who, "say=ok", key=house.key) for who in (house.ada, house.ben) for _ in range(5)]
    )
    for run in runs:
        assert (await house.ben.chat_end(run))["state"] == "final"
    assert len(await history(house.ada, house.key)) == 20
    assert (await say(house.ben, "say=last", key=house.key))["state"] == "final"


async def test_what_a_child_in_the_room_reads_is_fit_for_it(house: House) -> None:
    """SK-130: an adult's question is answered where a child reads along; what others say by themselves is theirs."""
    for answered, is_held in (("We met at the casino to gamble", True), ("We met at the park", False)):
        child, token = await add_person(house.gateway, Role.CHILD, "Mia")
        await UserStore(house.gateway.app.database).set(UserId(child), UserChanges(content_filter="strict"))
        await house.admin.call("groups.join", {"groupId": house.room, "userId": child})
        async with house.gateway.client(token=token) as mia:
            shown = await answer(house.ada, f"say={answered}", key=house.key)
            assert (answered not in shown) == is_held
            assert told(await history(mia, house.key))[-1][1].endswith(shown)
            assert not any(event["event"] == "guardian.alert" for event in house.admin.events)
        await house.admin.call("groups.leave", {"groupId": house.room, "userId": child})
    assert (
        await answer(house.ada, "say=We met at the casino to gamble", key=house.key) == "We met at the casino to gamble"
    )
