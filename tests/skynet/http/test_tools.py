"""The gateway's own tools in a chat completion: the client sees what is said, and carries out nothing."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from skynet_agent.messages import AssistantMessage, ToolResultMessage, UserMessage
from skynet_agent.tools import Tool, ToolContext
from tests.skynet.http.conftest import open_surface, until
from tests.skynet.http.test_chat import ask_raw, events, streamed_text


async def look(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    return f"seen {arguments.get('n', '')}"


LOOK = Tool(name="look", description="Looks.", parameters={"type": "object"}, permission="files.read", run=look)
SCRIPT = 'say=let me see tool=look:{"n":1} next-round say=it is blue'


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_run_and_only_words_are_seen(tmp_path: Path, stream: bool) -> None:
    """SK-098: streamed and not."""
    async with open_surface(tmp_path, tools=[LOOK]) as surface:
        answer = await surface.chat(SCRIPT, stream=stream)
        assert answer.status_code == 200
        if stream:
            assert streamed_text(answer.content) == "let me see\n\nit is blue"
            assert not any("tool_calls" in e["choices"][0]["delta"] for e in events(answer.content)[:-1])
        else:
            choice = answer.json()["choices"][0]
            assert choice["message"] == {"role": "assistant", "content": "let me see\n\nit is blue", "refusal": None}
            assert choice["finish_reason"] == "stop"
            assert answer.json()["usage"]["prompt_tokens"] == 200
        names = [[tool["function"]["name"] for tool in body["tools"]] for body in surface.models.bodies]
        assert names == [["look"], ["look"]]
        assert [message["role"] for message in surface.models.bodies[-1]["messages"]][-2:] == ["assistant", "tool"]


async def test_a_repeated_request_gets_all_that_was_said(tmp_path: Path) -> None:
    async with open_surface(tmp_path, tools=[LOOK]) as surface:
        headers = {"idempotency-key": "k"}
        first, again = [(await surface.chat(SCRIPT, headers=headers)).json() for _ in range(2)]
        assert first["choices"] == again["choices"]
        assert first["usage"] == again["usage"]
        assert surface.models.served == 2


async def test_a_client_with_its_own_tools_is_asked_itself(tmp_path: Path) -> None:
    async with open_surface(tmp_path, tools=[LOOK]) as surface:
        own = {"type": "function", "function": {"name": "theirs", "parameters": {"type": "object"}}}
        choice = (await surface.chat("tool=theirs:{}", tools=[own])).json()["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert [tool["function"]["name"] for tool in surface.models.bodies[-1]["tools"]] == ["theirs"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_was_cut_off_is_not_the_clients_to_carry_out(tmp_path: Path, stream: bool) -> None:
    async with open_surface(tmp_path, tools=[LOOK]) as surface:
        answer = await surface.chat("say=let me tool=look:{} finish=length", stream=stream)
        if stream:
            assert streamed_text(answer.content) == "let me"
            assert not any("tool_calls" in e["choices"][0]["delta"] for e in events(answer.content)[:-1])
        else:
            (choice,) = answer.json()["choices"]
            assert choice["message"] == {"role": "assistant", "content": "let me", "refusal": None}
            assert choice["finish_reason"] == "length"


async def test_the_gateways_tools_cannot_be_chosen_by_name(tmp_path: Path) -> None:
    async with open_surface(tmp_path, tools=[LOOK]) as surface:
        choice = {"type": "function", "function": {"name": "look"}}
        answer = await surface.chat(tool_choice=choice)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tool_choice")
        assert surface.models.served == 0


async def test_a_call_that_is_required_is_made_once_and_then_answered(tmp_path: Path) -> None:
    async with open_surface(tmp_path, tools=[LOOK]) as surface:
        answer = await surface.chat(SCRIPT, tool_choice="required")
        assert answer.json()["choices"][0]["message"]["content"] == "let me see\n\nit is blue"
        assert [body.get("tool_choice") for body in surface.models.bodies] == ["required", None]


class Waiting:
    """A tool that never comes to an end; ``stopped`` counts the calls that were stopped."""

    def __init__(self) -> None:
        self.running = self.stopped = 0
        self.tool = Tool(name="look", description="", parameters={"type": "object"}, permission="p", run=self._run)

    async def _run(self, context: ToolContext, arguments: Mapping[str, Any]) -> str:
        self.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped += 1
        return ""


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_during_a_tool_stops_it(tmp_path: Path, stream: bool) -> None:
    waiting = Waiting()
    async with open_surface(tmp_path, tools=[waiting.tool]) as surface:
        _, writer = await ask_raw(surface, SCRIPT, stream=stream)
        await until(lambda: waiting.running == 1)
        writer.close()
        await until(surface.idle)
        assert waiting.stopped == 1
        stored = await surface.transcript(f"user:{surface.owner.id}:agent:main:openai-user:bob")
        assert [type(message) for message in stored] == [
            UserMessage,
            AssistantMessage,
            ToolResultMessage,
            AssistantMessage,
        ]
        assert stored[-1].stop_reason == "aborted"
        assert surface.models.served == 1


async def test_a_repeated_request_waits_for_the_tools_of_the_first(tmp_path: Path) -> None:
    waiting = Waiting()
    async with open_surface(tmp_path, tools=[waiting.tool]) as surface:
        headers = {"idempotency-key": "k"}
        first = asyncio.create_task(surface.chat(SCRIPT, headers=headers))
        await until(lambda: waiting.running == 1)
        again = await surface.chat(SCRIPT, headers=headers)
        assert (again.status_code, again.json()["error"]["code"]) == (409, "idempotency_key_in_use")
        (run,) = surface.runs.active(surface.owner.id)
        run.abort("stop")
        assert (await first).status_code == 409
        assert (await surface.chat(SCRIPT, headers=headers)).json()["error"]["code"] == "idempotency_key_used"
        assert (waiting.running, waiting.stopped, surface.models.served) == (1, 1, 1)
