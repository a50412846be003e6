"""What is remembered, from one message to the next, over the whole gateway."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skynet_memory.ids import Role
from tests.end_to_end.scene import add_person, answer, tool
from tests.support.client import Refused, WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer

LEARN = tool("memory_learn", category="fact", key="bike", value="a blue Brompton")


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def gateway(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, models=models) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[WireClient]:
    async with gateway.client() as connected:
        yield connected


def prompt(models: ModelServer) -> str:
    """What the model was told besides the conversation, with the last request."""
    return "\n".join(
        str(message["content"]) for message in models.bodies[-1]["messages"] if message["role"] == "system"
    )


def asked(models: ModelServer) -> str:
    """What the model was last sent in the person's name."""
    return str([message["content"] for message in models.bodies[-1]["messages"] if message["role"] == "user"][-1])


async def test_what_is_learned_is_told_with_the_next_message(client: WireClient, models: ModelServer) -> None:
    """SK-135, SK-138, SQ-048: at once, in every conversation, letter for letter as memory.show says."""
    assert await answer(client, LEARN) == "tool said: remembered: bike: a blue Brompton (fact, confidence 0.8)"
    await answer(client, "say=hello", key="agent:main:elsewhere")
    shown = (await client.call("memory.show"))["text"]
    assert "- bike: a blue Brompton" in shown
    assert shown in prompt(models)
    await answer(client, tool("memory_forget", key="bike"))
    await answer(client, "say=hello")
    assert "Brompton" not in prompt(models)


async def test_nobody_is_told_what_is_anothers(
    gateway: RunningGateway, client: WireClient, models: ModelServer
) -> None:
    """SK-134: not in a prompt, not by a tool, not by a method."""
    await answer(client, LEARN)
    _, token = await add_person(gateway, Role.USER)
    async with gateway.client(token=token) as other:
        assert await answer(other, tool("memory_search", query="Brompton")) == (
            "tool said: nothing is remembered about Brompton"
        )
        assert "Brompton" not in prompt(models)
        assert await answer(other, tool("history_search", query="blue")) == "tool said: nothing was said about blue"
        assert (await other.call("memory.search", {"query": "Brompton"}))["memories"] == []


async def test_who_is_read_is_told(gateway: RunningGateway, client: WireClient, models: ModelServer) -> None:
    """An admin reads another's memory only by an explicit call, on record, and visibly for that person."""
    user_id, token = await add_person(gateway, Role.USER)
    async with gateway.client(token=token) as other:
        await answer(other, LEARN)
        read = await client.call("memory.list", {"userId": user_id})
        assert [memory["key"] for memory in read["memories"]] == ["bike"]
        event = await other.event(lambda e: e["event"] == "memory.read")
        assert (event["payload"]["action"], event["payload"]["method"]) == ("read", "memory.list")
        await answer(other, "say=hello")
        assert "read what is remembered about you (memory.list)" in asked(models)
        with pytest.raises(Refused, match=r"memory\.read"):
            await other.call("memory.list", {"userId": event["payload"]["by"]})
    entries = (await client.call("audit.list", {"action": "memory"}))["entries"]
    assert [(entry["action"], entry["subject"], entry["details"]) for entry in entries] == [
        ("memory.read", user_id, {"method": "memory.list"})
    ]
    assert not [event for event in client.events if event["event"] == "memory.read"]


async def test_earlier_conversations_are_found(client: WireClient) -> None:
    """SQ-086, SP-065: also after a reset; the question itself is not, and what tools answered is not."""
    await answer(client, "say=the plumber comes on Friday", key="agent:main:house")
    await client.call("sessions.reset", {"key": "agent:main:house"})
    found = await answer(client, tool("history_search", query="plumber"))
    assert "you: the plumber comes on Friday" in found
    assert found.count("history_search") == 0
    [hit] = [
        hit
        for hit in (await client.call("history.search", {"query": "Friday"}))["hits"]
        if hit["sessionKey"] == "agent:main:house"
    ]
    assert [entry["role"] for entry in hit["entries"]] == ["user", "assistant"]
    await client.call("sessions.delete", {"key": "agent:main:house"})
    hits = (await client.call("history.search", {"query": "plumber"}))["hits"]
    assert "agent:main:house" not in {hit["sessionKey"] for hit in hits}


async def test_topics_of_tools_that_are_used_often(client: WireClient, models: ModelServer) -> None:
    """SK-103, SK-104: once a tool was called ten times, the topic that is tagged with it stands in the prompt."""
    words = "Look into the garden folder first"
    for _ in range(10):
        await answer(client, tool("list_files"))
    for tag in ("read_file", "list_files"):
        await answer(client, tool("knowledge_write", topic="Finding files", content=words, tags=[tag]))
        await answer(client, "say=hello")
        assert (words in prompt(models)) == (tag == "list_files")
    assert words in (await client.call("memory.show"))["text"]


@pytest.mark.parametrize("by_tool", [True, False])
async def test_of_children_some_things_are_never_kept(gateway: RunningGateway, by_tool: bool) -> None:
    _, token = await add_person(gateway, Role.CHILD)
    memory: dict[str, Any] = {"category": "fact", "key": "health", "value": "I have asthma and take medicine"}
    async with gateway.client(token=token) as child:
        if by_tool:
            assert "not remembered" in await answer(child, tool("memory_learn", **memory))
        else:
            with pytest.raises(Refused, match="not remembered"):
                await child.call("memory.learn", memory)
        assert (await child.call("memory.list"))["total"] == 0
        assert (await child.call("memory.learn", {**memory, "key": "colour", "value": "green"}))["outcome"] == "added"
