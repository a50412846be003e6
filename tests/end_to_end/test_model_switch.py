"""A conversation that goes on with another model, of whatever kind: the scripted servers refuse what the real services
refuse, so every answer shows that all that was said before is told as the next one wants it (BA-077 to BA-080)."""

import json
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.scene import MAIN, answer, history, say, text, told, tool
from tests.end_to_end.wires import AWS_ENV, WIRES, Wire, all_wires
from tests.support.client import Refused, WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "mimeType": "image/png", "content": PNG}


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AWS_ENV.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def gateway(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path / "state", toml=all_wires(models, tmp_path)) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[WireClient]:
    async with gateway.client() as connected:
        yield connected


async def use(client: WireClient, wire: Wire, key: str = MAIN) -> None:
    patched = await client.call("sessions.patch", {"key": key, "model": wire.name})
    assert patched["resolved"] == {"modelProvider": wire.provider, "model": wire.model}


def tour(wires: Sequence[Wire]) -> list[Wire]:
    """A way on which every one follows every other: each pair of neighbours occurs once, in either order."""
    left = {(a, b) for a in range(len(wires)) for b in range(len(wires)) if a != b}
    way = [0]

    def go(here: int) -> None:  # Hierholzer: dead ends are joined in backwards
        for following in range(len(wires)):
            if (here, following) in left:
                left.discard((here, following))
                go(following)
        way.append(here)

    go(0)
    return [wires[number] for number in way[:0:-1]]


async def test_every_model_goes_on_after_every_other(client: WireClient, models: ModelServer) -> None:
    """BA-077, BA-078, BA-079."""
    way = tour(WIRES)
    assert len(set(pairwise(str(wire) for wire in way))) == len(WIRES) * (len(WIRES) - 1)
    said: list[tuple[str, str]] = []
    for number, wire in enumerate(way):
        await use(client, wire)
        script = (
            f"think=thought {number}. sign=c2ln{number:02}== say=look {number} {tool('list_files')} "
            f"{tool('read_file', path='none')} next-round think=more sign=bW9y{number:02}== say=and {number} "
            f"{tool('write_file', path=f'{number}.txt', content='x')} next-round say=answer {number}."
        )
        assert await answer(client, script, thinking="medium", attachments=[IMAGE]) == f"answer {number}."
        raw = models.requests[-1].raw.decode()
        if said:  # who asks next knows the answers before, with what the tools gave
            assert raw.count(f"answer {number - 1}.") == 2  # once in the script
            assert "none: No such file or directory" in raw
            assert raw.count(f"thought {number - 1}.") == 1  # nobody takes the thoughts of another turn
        assert raw.count(PNG) > (number > 0)  # the image of this message, and those before
        messages = told(await history(client))
        assert messages[: len(said)] == said
        said = messages
    answers = [message for message in await history(client) if message["role"] == "assistant"]
    assert [each["provider"] for each in answers[::3]] == [wire.provider for wire in way]


@pytest.mark.parametrize("wire", WIRES, ids=str)
async def test_a_plain_model_goes_on_where_a_gifted_one_began(tmp_path: Path, models: ModelServer, wire: Wire) -> None:
    """It sees no images, has no tools and does not think; then the gifted one again (BA-077, BA-080)."""
    gifted = WIRES[2]
    plain = wire.toml(models, tmp_path, provider="plain", input=["text"], tools=False, reasoning=False)
    toml = gifted.toml(models, tmp_path) + plain
    async with running_gateway(tmp_path / "state", toml=toml) as gateway, gateway.client() as client:
        await use(client, gifted)
        first = f"think=hm sign=c2ln {tool('list_files')} say=I see a dot"
        assert await answer(client, first, thinking="low", attachments=[IMAGE]) == "I see a dot"
        await client.call("sessions.patch", {"key": MAIN, "model": f"plain/{wire.model}"})
        assert (await answer(client, "say=what dot?", thinking="high", attachments=[IMAGE])).startswith("what dot?")
        seen = models.requests[-1]
        raw = seen.raw.decode()
        assert PNG not in raw
        assert raw.count("an image that this model cannot see") == 2
        assert "I see a dot" in raw and "the folder is empty" in raw
        assert "read_file" not in raw  # it is offered none; what was called before is told without
        await use(client, gifted)
        assert await answer(client, "say=the dot") == "the dot"
        raw = models.requests[-1].raw.decode()
        assert raw.count(PNG) == 2
        assert "what dot?" in raw


async def test_a_switch_while_a_message_waits_is_for_the_message(client: WireClient, models: ModelServer) -> None:
    """What is in the lane is asked with the model of the moment in which it is asked."""
    first, second = WIRES[0], WIRES[2]
    await use(client, first)
    params = {"sessionKey": MAIN, "message": "tokens=5 delay=50", "idempotencyKey": "one"}
    await client.call("chat.send", params)
    await client.call("chat.send", {**params, "message": "say=later", "idempotencyKey": "two"})
    await use(client, second)
    assert text((await client.chat_end("two"))["message"]) == "later"
    answers = [message["provider"] for message in await history(client) if message["role"] == "assistant"]
    assert answers == [first.provider, second.provider]


async def test_the_default_is_switched_for_all_but_those_who_chose(gateway: RunningGateway, client: WireClient) -> None:
    chosen, before, after = WIRES[5], WIRES[0], WIRES[4]
    await use(client, chosen, "agent:main:chosen")
    assert (await client.call("agent.model"))["model"] == before.name
    assert await provider_of(client, "agent:main:free") == before.provider
    switched = await client.call("agent.model", {"model": after.name})
    assert switched["model"] == after.name
    assert (await client.call("agent.status"))["model"] == after.name
    assert await provider_of(client, "agent:main:free") == after.provider
    assert await provider_of(client, "agent:main:chosen") == chosen.provider
    await client.call("sessions.patch", {"key": "agent:main:chosen", "model": None})
    assert await provider_of(client, "agent:main:chosen") == after.provider
    with pytest.raises(Refused, match="nobody/nothing"):
        await client.call("agent.model", {"model": "nobody/nothing"})
    # of a session, as in OpenClaw, the name is taken; who says something is told
    await client.call("sessions.patch", {"key": "agent:main:free", "model": "nobody/nothing"})
    end = await say(client, "say=never", key="agent:main:free")
    assert (end["state"], "nobody/nothing" in end["errorMessage"]) == ("error", True)


async def test_a_default_that_cannot_use_tools_answers_itself(tmp_path: Path, models: ModelServer) -> None:
    """Nobody's messages go to another provider because it could use tools."""
    small, large = WIRES[3].toml(models, tmp_path, tools=False), WIRES[2].toml(models, tmp_path)
    async with running_gateway(tmp_path / "state", toml=large + small) as gateway, gateway.client() as client:
        assert await provider_of(client, MAIN) == "ollama"
        assert "tools" not in models.bodies[-1]


async def provider_of(client: WireClient, key: str) -> str:
    """Who answers in a session."""
    await say(client, "say=it is me", key=key)
    last: dict[str, Any] = (await history(client, key))[-1]
    assert json.dumps(last["content"]) == '[{"type": "text", "text": "it is me"}]'
    return str(last["provider"])
