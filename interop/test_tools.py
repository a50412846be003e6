"""Tools: the gateway's own, as OpenClaw's clients and the OpenAI SDK meet them, and those that a client brings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from interop.gateway import Gateway
from interop.models import Models
from interop.openclaw import OpenClaw
from interop.test_agent import not_embedded
from interop.tui import running_tui

LIST = "tool=list_files:{}"
CLOCK: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "The time in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def call(name: str, **arguments: str) -> str:
    """The script words that call a tool."""
    return f"tool={name}:{json.dumps(arguments, separators=(',', ':'))}"


@pytest.fixture
def sdk(gateway: Gateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{gateway.http_url}/v1", api_key=gateway.token, max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def note(owner: OpenClaw) -> str:
    """A file that the assistant wrote when it was told to on the command line."""
    write = call("write_file", path="note.txt", content="buy milk")
    outcome = owner.run("agent", "--session-id", "noted", "--message", f"say=I write {write} next-round say=I wrote it")
    assert outcome.ok and not_embedded(outcome), str(outcome)
    assert outcome.out == "I write\nI wrote it\n"
    return "note.txt"


def test_agent_prints_all_that_was_said_around_its_tools(owner: OpenClaw, note: str, models: Models) -> None:
    script = f"say=I read {call('read_file', path=note)} next-round say=it says milk"
    outcome = owner.run("agent", "--session-id", "reader", "--message", script, "--json")
    assert not_embedded(outcome), str(outcome)
    result = outcome.value["result"]
    assert [payload["text"] for payload in result["payloads"]] == ["I read", "it says milk"]
    assert result["meta"]["agentMeta"]["usage"]["input"] == 200  # both times the model was asked
    first, second = models.requests("say=I read")
    assert {tool["function"]["name"] for tool in first["tools"]} >= {"read_file", "write_file", "patch_file"}
    assert [message["role"] for message in second["messages"][-2:]] == ["assistant", "tool"]
    assert second["messages"][-1]["content"] == "buy milk"


def test_history_has_calls_and_results(owner: OpenClaw, note: str) -> None:
    params = {"sessionKey": "agent:main:told", "message": call("read_file", path=note), "idempotencyKey": "told"}
    owner.call("agent", params, "--expect-final")
    messages = owner.call("chat.history", {"sessionKey": "agent:main:told"})["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "toolResult", "assistant"]
    assert messages[1]["content"] == [
        {"type": "toolCall", "id": "call_0", "name": "read_file", "arguments": {"path": note}}
    ]
    assert [messages[2][name] for name in ("toolCallId", "toolName", "isError")] == ["call_0", "read_file", False]
    assert messages[2]["content"] == [{"type": "text", "text": "buy milk"}]


@pytest.fixture
def at_home(openclaw_installed: None, gateway: Gateway, tmp_path: Path) -> OpenClaw:
    """A client of the same person on a device of its own: the terminal interface gives its name to the device."""
    return OpenClaw(tmp_path / "home", gateway.url, gateway.token)


@pytest.mark.parametrize(("level", "shown"), [("on", ""), ("full", "buy milk")])
def test_the_terminal_interface_shows_a_row_for_a_tool(
    tmux_installed: None, at_home: OpenClaw, note: str, tmp_path: Path, level: str, shown: str
) -> None:
    with running_tui(at_home, tmp_path, "--session", f"rows-{level}") as terminal:
        terminal.see("connected | idle", f"session agent:main:rows-{level}")
        terminal.type(f"/verbose {level}")
        terminal.see(f" | verbose {level} | ")
        terminal.type(f"say=I look {call('read_file', path=note)} next-round say=it says milk")
        screen = terminal.see("\n it says milk", "Read File", "connected | idle")
        row = screen.splitlines().index(next(line for line in screen.splitlines() if "Read File" in line))
        assert note in screen.splitlines()[row + 1]
        assert (" buy milk" in screen.splitlines()) is bool(shown)
        assert "run error" not in screen
    if not shown:
        return
    (tmp_path / "again").mkdir()
    with running_tui(at_home, tmp_path / "again", "--session", f"rows-{level}") as terminal:  # from the history
        terminal.see("\n I look", "Read File", "\n it says milk", f" | verbose {level} | ")


def test_the_terminal_interface_stops_a_tool_that_runs(
    tmux_installed: None, at_home: OpenClaw, gateway: Gateway, note: str, tmp_path: Path
) -> None:
    (written,) = gateway.home.glob(f"users/*/files/{note}")
    big = written.parent / "big"
    big.mkdir()
    (big / "0").write_text("a line of words\n" * 500_000)
    for number in range(1, 500):
        (big / str(number)).hardlink_to(big / "0")
    with running_tui(at_home, tmp_path, "--session", "stopping") as terminal:
        terminal.see("connected | idle")
        terminal.type("/verbose on")
        terminal.see(" | verbose on | ")
        terminal.type(f"say=I search {call('search_files', query='needle')}")
        terminal.see("Search Files")
        terminal.press("Escape")
        terminal.see("run aborted", "connected | aborted")
        terminal.type("say=after the abort")
        terminal.see("\n after the abort", "connected | idle")


# The OpenAI SDK


def test_a_client_without_tools_gets_the_answer_that_the_gateway_s_tools_led_to(
    sdk: OpenAI, owner: OpenClaw, note: str
) -> None:
    script = f"say=I read {call('read_file', path=note)} next-round say=it says milk"
    completion = sdk.chat.completions.create(model="skynet", messages=[{"role": "user", "content": script}])
    (choice,) = completion.choices
    assert (choice.finish_reason, choice.message.content) == ("stop", "I read\n\nit says milk")
    assert choice.message.tool_calls is None
    assert completion.usage is not None and completion.usage.prompt_tokens == 200


def test_so_does_its_stream(sdk: OpenAI, owner: OpenClaw, note: str) -> None:
    script = f"say=I read {call('read_file', path=note)} {LIST} next-round say=it says milk"
    with sdk.chat.completions.stream(model="skynet", messages=[{"role": "user", "content": script}]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0]
    assert not any("tool_calls" in kind for kind in kinds)
    assert (final.finish_reason, final.message.content) == ("stop", "I read\n\nit says milk")


def test_a_client_with_tools_of_its_own_carries_them_out_itself(sdk: OpenAI, models: Models) -> None:
    """The loop that every agent on this SDK has, with the gateway as its model."""
    times = {"Oslo": "10:00", "Lima": "04:00", "Rome": "10:01"}
    script = " next-round ".join(
        (f"{call('clock', city='Oslo')} {call('clock', city='Lima')}", call("clock", city="Rome"), "say=early and late")
    )
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": script}]
    asked: list[str] = []
    while True:
        (choice,) = sdk.chat.completions.create(model="skynet", messages=messages, tools=[CLOCK]).choices
        if not choice.message.tool_calls:
            break
        messages.append(choice.message.to_dict())  # type: ignore[arg-type]
        for each in choice.message.tool_calls:
            assert each.type == "function"
            city = json.loads(each.function.arguments)["city"]
            asked.append(city)
            messages.append({"role": "tool", "tool_call_id": each.id, "content": times[city]})
    assert asked == ["Oslo", "Lima", "Rome"]
    assert choice.message.content == "early and late"
    last = models.requests(script)[-1]
    assert last["tools"] == [CLOCK]
    assert [each["content"] for each in last["messages"] if each["role"] == "tool"] == ["10:00", "04:00", "10:01"]
