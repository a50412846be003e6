"""The prompt's tiers and what providers' caches make of them, for two people who talk in turns (SK-084 to SK-088,
BA-075). The server bills as providers do: it reads from its cache what a request has in common with an earlier one."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skynet_memory.ids import Role
from tests.end_to_end.scene import MAIN, add_person, history, say, text, tool
from tests.end_to_end.wires import WIRES, Wire
from tests.skynet.cli.conftest import environment
from tests.support.client import WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer, PromptCache

TURNS = 20
COMPLETIONS, ANTHROPIC = WIRES[0], WIRES[2]
SENTENCE = "Speak plainly, remember who lives here, and say so when you are not sure. "
WORKSPACE = {
    "SOUL.md": f"You are Juno, the assistant of a house by the sea.\n{SENTENCE * 30}",
    "IDENTITY.md": "- Name: Juno\n- Manner: dry\n",
    "AGENTS.md": f"- Finish what you begin.\n{SENTENCE * 40}",
    "USER.md": f"- Ada works with wood.\n- Bob bakes.\n{SENTENCE * 15}",
    "TOOLS.md": f"The pantry is in pantry.txt.\n{SENTENCE * 15}",
    "MEMORY.md": f"The boiler was serviced in May.\n{SENTENCE * 10}",
}
"""About eight kilobytes together."""
SECOND_TIER = "# The person you talk with"


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer(keep=4000) as server:
        server.cache = True
        yield server


@dataclass
class House:
    """A gateway with two people in it."""

    gateway: RunningGateway
    models: ModelServer
    home: Path
    ada: WireClient
    bob: WireClient
    tokens: list[str]

    async def turn(self, client: WireClient, number: int) -> None:
        """What people say: a question that is answered with the help of a tool."""
        name = "Ada" if client is self.ada else "Bob"
        note = f"{name} needs {number} eggs, two pounds of flour and a jar of honey for the weekend. " * 2
        write = tool("write_file", path=f"pantry-{number}.txt", content=note)
        end = await say(client, f"say=I wrote down what {name} needs for number {number}. {write}")
        assert end["state"] == "final", end

    def bodies(self, client: WireClient) -> list[dict[str, Any]]:
        """The requests that were made for a person, by the name in the second tier."""
        name = "Ada" if client is self.ada else "Bob"
        return [body for body in self.models.bodies if f"- Name: {name}" in system_of(body)[1]]


@asynccontextmanager
async def open_house(home: Path, models: ModelServer, wire: Wire) -> AsyncIterator[House]:
    write_workspace(home)
    async with running_gateway(home, toml=wire.toml(models, home)) as gateway:
        tokens = [
            (await add_person(gateway, role, name))[1] for name, role in (("Ada", Role.ADMIN), ("Bob", Role.USER))
        ]
        async with gateway.client(token=tokens[0]) as ada, gateway.client(token=tokens[1]) as bob:
            yield House(gateway, models, home, ada, bob, tokens)


def write_workspace(home: Path) -> None:
    home.mkdir()
    for name, content in WORKSPACE.items():
        (home / name).write_text(content)


def system_of(body: dict[str, Any]) -> list[str]:
    """The first two tiers."""
    if "system" in body:
        return [block["text"] for block in body["system"]]
    (text,) = (message["content"] for message in body["messages"] if message["role"] == "system")
    first, heading, rest = text.partition(SECOND_TIER)
    return [first, heading + rest]


def marks_of(blocks: list[dict[str, Any]]) -> list[bool]:
    return ["cache_control" in block for block in blocks]


@pytest.mark.parametrize("wire", [ANTHROPIC, COMPLETIONS], ids=str)
async def test_most_of_what_two_people_send_is_read_from_the_cache(
    tmp_path: Path, models: ModelServer, wire: Wire
) -> None:
    """SK-085 to SK-088, BA-075."""
    async with open_house(tmp_path / "state", models, wire) as house:
        for number in range(TURNS):
            await house.turn(house.ada, number)
            await house.turn(house.bob, number)
        await say(house.ada, "say=elsewhere", key="agent:main:other")  # what only Ada pays for
        for client in (house.ada, house.bob):
            bodies = house.bodies(client)
            assert len(bodies) == 2 * TURNS + (client is house.ada)
            totals = (await client.call("usage.cost", {"days": 1}))["totals"]
            prompt = totals["input"] + totals["cacheRead"] + totals["cacheWrite"]
            assert totals["cacheRead"] / prompt >= 0.9
            assert totals["cacheShare"] == pytest.approx(totals["cacheRead"] / prompt, abs=1e-4)
            assert totals["cacheReadCost"] == pytest.approx(totals["cacheRead"] * 0.2e-6, abs=1e-6 * len(bodies))
            assert len(await history(client)) == 4 * TURNS
        check_bill(house, wire, [house.ada, house.bob], [await cost(house.ada), await cost(house.bob)])
        check_tiers(house)
        if wire is ANTHROPIC:
            check_marks(house)
        else:
            check_keys(house)
        await check_status(house)


async def cost(client: WireClient) -> dict[str, Any]:
    totals: dict[str, Any] = (await client.call("usage.cost", {"days": 1}))["totals"]
    return totals


def check_bill(house: House, wire: Wire, clients: list[WireClient], totals: list[dict[str, Any]]) -> None:
    """What the gateway stored is what the server's own books say, reckoned once more from all that it was sent."""
    books, bills = PromptCache(), {id(client): [0, 0, 0] for client in clients}
    dialect = next(each for each in house.models.dialects if each.accepts(house.models.requests[-1]))
    for body in house.models.bodies:
        owner = next(client for client in clients if any(body is each for each in house.bodies(client)))
        key = (wire.api, body["model"], body.get("prompt_cache_key"))
        marks = dialect.cache == "marks"
        prompt, read, written = books.bill(key, dialect.prompt_blocks(body), marks=marks)
        bill = bills[id(owner)]
        bill[0] += prompt
        bill[1] += read
        bill[2] += written or 0
    for client, total in zip(clients, totals, strict=True):
        prompt, read, written = bills[id(client)]
        assert (total["cacheRead"], total["cacheWrite"]) == (read, written)
        assert total["input"] == prompt - read - written


def check_tiers(house: House) -> None:
    """The first tier is everybody's, the second a person's, to the byte; what follows is true only now."""
    first = {system_of(body)[0] for body in house.models.bodies}
    assert len(first) == 1
    assert len({json.dumps(body["tools"]) for body in house.models.bodies}) == 1
    (tier,) = first
    positions = [tier.index(f"# {name}: ") for name in WORKSPACE]
    assert positions == sorted(positions)
    assert tier.index("# Rules that always hold") > positions[-1]
    sent = {seen.raw.index(json.dumps(tier[:60])[1:-1].encode()) for seen in house.models.requests}
    assert len(sent) == 1  # at the same place, behind the same bytes
    seconds = []
    for client, name in ((house.ada, "Ada"), (house.bob, "Bob")):
        (second,) = {system_of(body)[1] for body in house.bodies(client)}
        assert f"- Name: {name}" in second
        seconds.append(second)
    assert "May not use: workspace_update" in seconds[1]
    assert "May not use" not in seconds[0]


def last_user_blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the person's last message."""
    messages = [m for m in body["messages"] if m["role"] == "user" and "tool_result" not in json.dumps(m["content"])]
    content = messages[-1]["content"]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return blocks


def check_marks(house: House) -> None:
    """Marks end the first and the second tier; the volatile text is behind them all."""
    for body in house.models.bodies:
        assert marks_of(body["system"]) == [True, True]
        assert not any(marks_of(body["tools"]))
        assert json.dumps(body).count('"cache_control"') <= 4
        blocks = last_user_blocks(body)
        assert blocks[-1]["text"].startswith("<session>")
        assert "cache_control" not in blocks[-1]
        if body["messages"][-1]["content"] == blocks:  # the first round: what is marked is what will be sent again
            assert marks_of(blocks)[:-1] == [*[False] * (len(blocks) - 2), True]
    said = [last_user_blocks(body)[-1]["text"] for body in house.bodies(house.bob)]
    assert [f"Message {number // 2 + 1} of this session" in text for number, text in enumerate(said)] == [True] * len(
        said
    )


def check_keys(house: House) -> None:
    """A conversation has a key of its own, which keeps it with the machine that has its beginning."""
    keys = [{body["prompt_cache_key"] for body in house.bodies(client)} for client in (house.ada, house.bob)]
    assert [len(each) for each in keys] == [2, 1]
    assert keys[0].isdisjoint(keys[1])
    for body in house.models.bodies:
        blocks = last_user_blocks(body)
        assert blocks[-1]["text"].rstrip().endswith("</session>")
        assert "cache_control" not in json.dumps(body)


async def check_status(house: House) -> None:
    """``skynet status`` shows everybody their own share."""
    for client, token in zip((house.ada, house.bob), house.tokens, strict=True):
        totals = await cost(client)
        said = await skynet(house, token, "status")
        (line,) = (line for line in said.splitlines() if line.startswith("last 30 days\t"))
        share, dollars = f"{totals['cacheShare']:.0%}", f"${totals['totalCost']:.2f}"
        assert line == f"last 30 days\t{totals['totalTokens']} tokens, {share} of the input cached, {dollars}"


async def skynet(house: House, token: str, *command: str) -> str:
    """What a command prints, in a process of its own, on a person's own device."""
    port = house.gateway.url.rpartition(":")[2]
    env = environment(house.home / f"client-{token[-8:]}", SKYNET_GATEWAY_PORT=port)
    argv = [sys.executable, "-m", "skynet.cli", *command, "--token", token]
    done = await asyncio.to_thread(subprocess.run, argv, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


async def test_a_changed_file_is_in_everybody_s_next_prompt_and_then_cached_again(
    tmp_path: Path, models: ModelServer
) -> None:
    """SK-086, SK-087."""
    async with open_house(tmp_path / "state", models, ANTHROPIC) as house:
        clients = (house.ada, house.bob)
        for client in clients:
            await house.turn(client, 1)
        (house.home / "SOUL.md").write_text("You are Juno, and you sing.")
        for client in clients:
            await house.turn(client, 2)
        tiers = [system_of(body)[0] for body in models.bodies]
        assert len(set(tiers)) == 2 and set(tiers[:4]).isdisjoint(tiers[4:])
        assert all("you sing" in tier for tier in tiers[4:])
        seconds = {system_of(body)[1] for body in models.bodies}
        assert len(seconds) == 2  # of two people, as before
        before = [(await cost(client))["cacheRead"] for client in clients]
        for client in clients:
            await house.turn(client, 3)
        after = [(await cost(client))["cacheRead"] for client in clients]
        assert all(now > read + 4000 for now, read in zip(after, before, strict=True))


async def test_what_is_true_only_now_is_not_kept(tmp_path: Path, models: ModelServer) -> None:
    async with open_house(tmp_path / "state", models, ANTHROPIC) as house:
        await house.ada.call("wake", {"mode": "next-heartbeat", "text": "the bell rang"})
        for number in range(3):
            await house.turn(house.ada, number)
        told = ["the bell rang" in json.dumps(body) for body in models.bodies]
        assert told == [True, True, False, False, False, False]
        assert [
            json.dumps(body).count("<session>") - json.dumps(system_of(body)).count("<session>")
            for body in models.bodies
        ] == [1] * 6
        shown = json.dumps(await history(house.ada, MAIN))
        assert "<session>" not in shown and "bell" not in shown
        assert text((await history(house.ada))[0]).startswith("say=I wrote down")
