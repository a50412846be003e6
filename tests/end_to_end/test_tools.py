"""The gateway's tools as people meet them: what is told to whom, what is stored when, and whose files they reach
(OPENCLAW-V3 7.3, 7.4, 8.4)."""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from skynet_memory.ids import Role
from skynet_memory.turns import INTERRUPTED
from tests.end_to_end.scene import (
    MAIN,
    add_person,
    answer,
    files_of,
    history,
    of_run,
    owner_of,
    say,
    send,
    text,
    told,
    tool,
)
from tests.end_to_end.test_restart import make_home, running
from tests.support.client import WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer
from tests.support.polling import until

CAPS = ("tool-events",)
SHOPPING = " next-round ".join(
    (
        f"say=let me write {tool('write_file', path='notes.txt', content='buy milk')}",
        f"say=and read it {tool('read_file', path='notes.txt')} {tool('list_files')}",
        "say=it says milk",
    )
)
"""A turn of three rounds: one call, two at the same time, none."""


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
    async with gateway.client(caps=CAPS) as connected:
        yield connected


def tool_events(client: WireClient, run_id: str = "") -> list[dict[str, Any]]:
    """Events of the stream ``tool``."""
    return [
        event
        for event in client.events
        if event["event"] == "agent"
        and event["payload"]["stream"] == "tool"
        and run_id in ("", event["payload"]["runId"])
    ]


# What clients are told


async def test_a_client_that_watches_sees_each_call_begin_and_end(client: WireClient) -> None:
    run_id = await send(client, SHOPPING)
    await client.chat_end(run_id)
    events = tool_events(client, run_id)
    data = [event["payload"]["data"] for event in events]
    assert [(each["phase"], each["name"], each["toolCallId"]) for each in data[:3]] == [
        ("start", "write_file", "call_0"),
        ("result", "write_file", "call_0"),
        ("start", "read_file", "call_1_0"),
    ]
    assert data[0]["args"] == {"path": "notes.txt", "content": "buy milk"}
    parallel = [(each["phase"], each["toolCallId"]) for each in data[2:]]
    assert sorted(parallel[:2]) == [("start", "call_1_0"), ("start", "call_1_1")]
    assert sorted(parallel[2:]) == [("result", "call_1_0"), ("result", "call_1_1")]
    assert {each["isError"] for each in data if each["phase"] == "result"} == {False}
    assert not any("seq" in event for event in events)
    assert not any("result" in each for each in data)  # only where the session's verbose level is full
    # one counter for all that is told of the run, the tools between the messages they belong to
    agent = [event["payload"] for event in of_run(client, run_id) if event["event"] == "agent"]
    assert [each["seq"] for each in agent] == list(range(1, len(agent) + 1))
    said = [(each["stream"], each["data"].get("text") or each["data"].get("phase")) for each in agent]
    positions = [said.index(("assistant", words)) for words in ("let me write", "and read it", "it says milk")]
    tools = [position for position, (stream, _) in enumerate(said) if stream == "tool"]
    assert positions[0] < tools[0] < tools[1] < positions[1] < tools[2] < tools[-1] < positions[2]


async def test_who_does_not_watch_is_told_nothing_of_tools(gateway: RunningGateway, client: WireClient) -> None:
    _, token = await add_person(gateway, Role.ADMIN)
    async with (
        gateway.client() as plain,  # its own messages, without the cap
        gateway.client(caps=CAPS) as bystander,  # the cap, but nothing of its own
        gateway.client(token=token, caps=CAPS) as stranger,
    ):
        run_id = await send(client, SHOPPING)
        await client.chat_end(run_id)
        await bystander.chat_end(run_id)
        assert tool_events(client, run_id)
        own_id = await send(plain, SHOPPING, key="agent:main:plain")
        await plain.chat_end(own_id)
        await say(stranger, "say=hello")
        assert not tool_events(plain) and not tool_events(bystander)
        assert not tool_events(client, own_id)  # it did not start this one
        assert {
            event["payload"]["runId"] for event in stranger.events if event["event"] in ("agent", "chat")
        }.isdisjoint({run_id, own_id})
        # frames are numbered without gaps all the same
        for each in (client, plain, bystander, stranger):
            numbers = [event["seq"] for event in each.events if "seq" in event]
            assert numbers == list(range(1, len(numbers) + 1))


async def test_who_repeats_a_message_watches_its_run_too(gateway: RunningGateway, client: WireClient) -> None:
    run_id = await send(client, f"first=300 {tool('list_files')} say=done")
    async with gateway.client(caps=CAPS) as second:
        repeated = {"sessionKey": MAIN, "message": "the same", "idempotencyKey": run_id}
        assert (await second.call("chat.send", repeated))["status"] == "in_flight"
        await second.chat_end(run_id)
        assert [event["payload"]["data"]["phase"] for event in tool_events(second, run_id)] == ["start", "result"]


async def test_results_are_told_where_the_session_is_fully_verbose(client: WireClient) -> None:
    await say(client, "say=hello")
    await client.call("sessions.patch", {"key": MAIN, "verboseLevel": "full"})
    run_id = await send(client, SHOPPING)
    await client.chat_end(run_id)
    results = {
        each["toolCallId"]: each["result"]
        for event in tool_events(client, run_id)
        if (each := event["payload"]["data"])["phase"] == "result"
    }
    assert results["call_1_0"] == {"content": [{"type": "text", "text": "buy milk"}]}
    assert "notes.txt" in text(results["call_1_1"])


async def test_deltas_begin_anew_with_each_message_and_the_last_one_is_final(client: WireClient) -> None:
    first, last = "one two three four", "five six seven eight"
    run_id = await send(client, f"say={first} delay=30 {tool('list_files')} next-round say={last} delay=30")
    final = await client.chat_end(run_id)
    assert (final["state"], text(final["message"])) == ("final", last)
    events = [event["payload"] for event in of_run(client, run_id)]
    deltas = [text(event["message"]) for event in events if event.get("state") == "delta"]
    begun = next(number for number, delta in enumerate(deltas) if delta.startswith("five"))
    assert begun > 0
    assert all(first.startswith(delta) for delta in deltas[:begun])
    assert all(last.startswith(delta) for delta in deltas[begun:])
    # the agent stream's deltas are the whole of both, and its text begins anew too
    assistant = [event["data"] for event in events if event.get("stream") == "assistant"]
    assert "".join(each["delta"] for each in assistant) == first + last
    assert [each["text"] for each in assistant if each["text"] in (first, last)] == [first, last]


async def test_the_history_shows_calls_and_results(client: WireClient) -> None:
    """SK-098."""
    await say(client, SHOPPING)
    messages = await history(client)
    assert [message["role"] for message in messages] == [
        *("user", "assistant", "toolResult"),
        *("assistant", "toolResult", "toolResult"),
        "assistant",
    ]
    asked, wrote, written, looked, read, listed, done = messages
    assert text(asked) == SHOPPING
    assert wrote["content"] == [
        {"type": "text", "text": "let me write"},
        {
            "type": "toolCall",
            "id": "call_0",
            "name": "write_file",
            "arguments": {"path": "notes.txt", "content": "buy milk"},
        },
    ]
    assert (wrote["stopReason"], looked["stopReason"], done["stopReason"]) == ("toolUse", "toolUse", "stop")
    assert (written["toolCallId"], written["toolName"], written["isError"]) == ("call_0", "write_file", False)
    assert [(each["toolCallId"], each["toolName"]) for each in (read, listed)] == [
        ("call_1_0", "read_file"),
        ("call_1_1", "list_files"),
    ]
    assert read["content"] == [{"type": "text", "text": "buy milk"}]
    assert {(each["api"], each["provider"], each["model"]) for each in (wrote, looked, done)} == {
        ("openai-completions", "mock", "mock-1")
    }
    assert not any("usage" in message for message in messages)
    times = [message["timestamp"] for message in messages if message["role"] != "toolResult"]  # those ran together
    assert times == sorted(times)


async def test_a_failure_of_a_tool_is_a_result(client: WireClient) -> None:
    """SK-099."""
    end = await say(client, f"{tool('read_file', path='nothing.txt')} {tool('fly')} {tool('read_file', path=7)}")
    assert end["state"] == "final"
    results = [message for message in await history(client) if message["role"] == "toolResult"]
    assert [message["isError"] for message in results] == [True, True, True]
    assert text(results[0]) == "nothing.txt: No such file or directory"
    assert text(results[1]).startswith("there is no tool 'fly'; there are: read_file, ")
    assert text(results[2]) == "read_file was not run, its arguments are wrong: path: 7 is not of type 'string'"


async def test_a_model_that_never_ends_is_stopped_and_says_so(tmp_path: Path, models: ModelServer) -> None:
    toml = "[agent]\nmax_rounds = 4\n"
    async with running_gateway(tmp_path, models=models, toml=toml) as gateway, gateway.client() as client:
        end = await say(client, f"every-round {tool('list_files')}")
    assert text(end["message"]) == ("I stopped here: the model was asked 4 times and still wanted to use tools.")
    assert models.asked == 4


# The whole way over HTTP


@pytest.mark.parametrize("stream", [False, True])
async def test_a_plain_http_client_gets_all_that_was_said(gateway: RunningGateway, stream: bool) -> None:
    headers = {"authorization": f"Bearer {gateway.token}"}
    body = {"model": "skynet", "messages": [{"role": "user", "content": SHOPPING}], "stream": stream}
    async with httpx2.AsyncClient(base_url=gateway.http_url, headers=headers, timeout=20, trust_env=False) as http:
        answered = await http.post("/v1/chat/completions", json=body)
    said = streamed(answered.text) if stream else answered.json()["choices"][0]["message"]["content"]
    assert said == "let me write\n\nand read it\n\nit says milk"
    assert "tool_calls" not in answered.text


def streamed(body: str) -> str:
    """The text of a streamed answer."""
    lines = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: {")]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


# Stopped


def searching() -> bool:
    """Whether a thread is looking through files."""
    for frame in sys._current_frames().values():
        found: Any = frame
        while found is not None:
            if found.f_code.co_filename.endswith("skynet/tools/search.py") and found.f_code.co_name == "work":
                return True
            found = found.f_back
    return False


@pytest.fixture
async def haystack(gateway: RunningGateway, tmp_path: Path) -> None:
    """The owner has so much in the folder that a search takes half a minute."""
    folder = files_of(tmp_path, await owner_of(gateway))
    folder.mkdir(parents=True)
    (folder / "0").write_text("a line of words\n" * 500_000)
    for number in range(1, 500):
        os.link(folder / "0", folder / str(number))


@pytest.mark.usefixtures("haystack")
async def test_an_abort_stops_the_tool_that_runs(client: WireClient, models: ModelServer) -> None:
    threads = threading.active_count()
    run_id = await send(client, f"say=let me see {tool('search_files', query='needle')}")
    await until(searching)
    answered = await client.call("chat.abort", {"sessionKey": MAIN})
    assert answered == {"ok": True, "aborted": True, "runIds": [run_id]}
    end = await client.chat_end(run_id)
    assert (end["state"], end["stopReason"]) == ("aborted", "rpc")
    await until(lambda: not searching())
    assert threading.active_count() <= threads + 2
    assert [event["payload"]["data"]["phase"] for event in tool_events(client, run_id)] == ["start"]
    assert models.asked == 1
    # the conversation goes on: the model is told that the call came to nothing
    assert await answer(client, "say=never mind") == "never mind"
    spoken = [message for message in models.requests[-1].body["messages"] if message["role"] != "system"]
    assert [message["role"] for message in spoken] == ["user", "assistant", "tool", "user"]
    assert spoken[2]["content"] == "No result: the call was interrupted."


@pytest.mark.usefixtures("haystack")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_stops_the_tool_that_runs(
    gateway: RunningGateway, models: ModelServer, stream: bool
) -> None:
    headers = {"authorization": f"Bearer {gateway.token}"}
    message = {"role": "user", "content": tool("search_files", query="needle")}
    body = {"model": "skynet", "messages": [message], "stream": stream}
    async with httpx2.AsyncClient(base_url=gateway.http_url, headers=headers, timeout=20, trust_env=False) as http:
        asking = asyncio.create_task(http.post("/v1/chat/completions", json=body))
        await until(searching)
        asking.cancel()
        await asyncio.wait({asking})
    await until(lambda: not searching())
    await until(lambda: not gateway.app.runs._active)
    assert models.asked == 1


async def test_killed_between_two_rounds(tmp_path: Path, models: ModelServer) -> None:
    """SK-101."""
    home = make_home(tmp_path / "state", models)
    first_round = tool("write_file", path="kept.txt", content="milk")
    async with running(home) as process, process.client() as client:
        run_id = await send(client, f"say=writing {first_round} next-round hang")
        await until(lambda: models.asked == 2)  # so the first round is on the disk
        process.signal(signal.SIGKILL)
        await process.ended()
    for _ in range(2):
        async with running(home) as process, process.client() as client:
            messages = await history(client)
            assert [message["role"] for message in messages] == ["user", "assistant", "toolResult", "assistant"]
            assert messages[2]["toolCallId"] == "call_0"
            assert messages[2]["isError"] is False
            assert (messages[3]["content"], messages[3]["errorMessage"]) == ([], INTERRUPTED)
            again = {"sessionKey": MAIN, "message": "x", "idempotencyKey": run_id}
            assert (await client.call("chat.send", again))["status"] == "ok"
            process.signal(signal.SIGTERM)
            await process.ended()
    assert models.asked == 2
    async with running(home) as process, process.client() as client:
        assert await answer(client, f"{tool('read_file', path='kept.txt')}") == "tool said: milk"
        bodies = [message["role"] for message in models.bodies[-1]["messages"]]
        assert bodies == ["system", "user", "assistant", "tool", "user", "assistant", "tool"]
        totals = (await client.call("usage.cost", {"days": 1}))["totals"]
        assert totals["input"] == 300  # the round before the kill is billed too


# Who may do what


async def test_a_child_uses_no_tools_and_the_model_is_told(
    gateway: RunningGateway, models: ModelServer, tmp_path: Path
) -> None:
    user_id, token = await add_person(gateway, Role.CHILD)
    async with gateway.client(token=token, caps=CAPS) as child:
        run_id = await send(child, f"{tool('write_file', path='a.txt', content='x')} {tool('list_files')}")
        said = text((await child.chat_end(run_id))["message"])
        assert said == ("tool said: list_files is not for this person (role child): it needs the permission files.read")
        results = [event["payload"]["data"] for event in tool_events(child, run_id)]
        assert [each["isError"] for each in results if each["phase"] == "result"] == [True, True]
        refused = [text(message) for message in await history(child) if message["role"] == "toolResult"]
    assert refused[0] == "write_file is not for this person (role child): it needs the permission files.write"
    assert not files_of(tmp_path, user_id).exists()
    # it was asked not to try: the second tier says so, the definitions are everybody's
    system = [message["content"] for message in models.bodies[0]["messages"] if message["role"] == "system"]
    refused_tools = "bash, execute_command, list_files, patch_file, read_file, search_files, workspace_update"
    assert f"May not use: {refused_tools}, write_file." in str(system)


async def test_everybody_has_files_of_their_own(gateway: RunningGateway, client: WireClient, tmp_path: Path) -> None:
    """SK-090."""
    owner = await owner_of(gateway)
    user_id, token = await add_person(gateway, Role.USER)
    async with gateway.client(token=token) as other:
        await say(client, tool("write_file", path="diary.txt", content="mine"))
        assert await answer(other, tool("list_files")) == "tool said: the folder is empty"
        await say(other, tool("write_file", path="diary.txt", content="theirs"))
        assert await answer(client, tool("read_file", path="diary.txt")) == "tool said: mine"
        for path in (
            f"../../{owner}/files/diary.txt",
            f"{files_of(tmp_path, owner)}/diary.txt",
            f"{tmp_path}/skynet.db",
            "/etc/passwd",
        ):
            said = await answer(other, tool("read_file", path=path))
            assert "was refused: it leads out of " in said
            assert "mine" not in said
        (files_of(tmp_path, user_id) / "link").symlink_to(files_of(tmp_path, owner))
        assert "was refused" in await answer(other, tool("read_file", path="link/diary.txt"))
    assert (files_of(tmp_path, user_id) / "diary.txt").read_text() == "theirs"
    for folder in (files_of(tmp_path, owner), files_of(tmp_path, user_id)):
        assert folder.stat().st_mode & 0o777 == 0o700


async def test_who_the_assistant_is_only_admins_change_and_by_one_tool_alone(
    tmp_path: Path, models: ModelServer
) -> None:
    """SK-110."""
    workspace = tmp_path / "house"
    workspace.mkdir()
    (workspace / "SOUL.md").write_text("You are Ada's assistant.")
    (workspace / "IDENTITY.md").write_text("- Name: (none yet)")
    toml = f'[agent]\nworkspace_dir = "{workspace}"\nrestrict_to_workspace = false\n'
    async with running_gateway(tmp_path / "state", models=models, toml=toml) as gateway:
        _, token = await add_person(gateway, Role.USER)
        change = tool("workspace_update", action="write", file="SOUL.md", content="You are Bob's.")
        async with gateway.client(token=token) as user, gateway.client() as admin:
            assert await answer(user, change) == (
                "tool said: workspace_update is not for this person (role user): it needs the permission "
                "workspace.write"
            )
            around = tool("write_file", path=f"{workspace}/SOUL.md", content="You are Bob's.")
            assert "was refused: it leads out of your folder" in await answer(user, around)
            assert await answer(admin, around) == (
                f"tool said: {workspace}/SOUL.md is a file of the assistant's own workspace: use workspace_update"
            )
            assert (workspace / "SOUL.md").read_text() == "You are Ada's assistant."
            before = first_tier(models)
            assert "You are Ada's assistant." in before

            # the bootstrap's end: the name that was agreed upon is in IDENTITY.md and in everybody's next prompt
            named = tool("workspace_update", action="write", file="IDENTITY.md", content="- Name: Juno")
            assert await answer(admin, named) == (
                "tool said: IDENTITY.md: written, 12 characters; it holds from the next message on"
            )
            await say(user, "say=who are you")
            assert "- Name: Juno" in first_tier(models)
            assert (workspace / "IDENTITY.md").read_text() == "- Name: Juno"


def first_tier(models: ModelServer) -> str:
    """What the last request says of the assistant."""
    content = models.bodies[-1]["messages"][0]["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


async def test_the_first_run_is_gone_through_once(tmp_path: Path, models: ModelServer) -> None:
    """SK-109."""
    home = tmp_path / "state"
    home.mkdir()
    (home / "SOUL.md").write_text("You are kind.")
    (home / "BOOTSTRAP.md").write_text("Ask for a name.")
    (home / ".first-run").touch()
    async with running_gateway(home, models=models) as gateway, gateway.client() as client:
        await say(client, "say=hello")
        assert "Ask for a name." in first_tier(models)
        assert await answer(client, tool("workspace_update", action="finish_bootstrap")) == (
            "tool said: the bootstrap is finished"
        )
        await say(client, "say=hello again")
        assert "Ask for a name." not in first_tier(models)
        assert told(await history(client))[-1] == ("assistant", "hello again")
