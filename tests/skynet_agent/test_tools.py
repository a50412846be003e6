"""A model calls a tool: who may, with which arguments, for how long, and what it is told."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from skynet_agent.messages import ImageBlock, TextBlock, ToolCallBlock, encode_message, text_of
from skynet_agent.tools import Tool, Toolbox, ToolContext, ToolFailed, ToolFunction
from skynet_memory.ids import Role, RunId, SessionKey, UserId

CONTEXT = ToolContext(user_id=UserId("u"), role=Role.USER, session_key=SessionKey("k"), run_id=RunId("r"))
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}}},
    "required": ["path"],
    "additionalProperties": False,
}


def tool(run: ToolFunction, **fields: Any) -> Tool:
    return Tool(name="look", description="Looks.", parameters=SCHEMA, permission="files.read", run=run, **fields)


def toolbox(*tools: Tool) -> Toolbox:
    return Toolbox(tools, permits=lambda context, tool: None)


def call(name: str = "look", **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock("c1", name, arguments)


async def say_path(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    return str(arguments["path"])


async def test_a_call() -> None:
    """SK-089."""
    box = toolbox(tool(say_path))
    result = await box.run(call(path="a"), CONTEXT)
    assert (result.tool_call_id, result.tool_name, result.is_error, text_of(result)) == ("c1", "look", False, "a")
    (definition,) = box.definitions()
    assert (definition.name, definition.description, definition.parameters) == ("look", "Looks.", SCHEMA)


async def test_results_may_hold_images() -> None:
    blocks = [TextBlock("a"), ImageBlock("image/png", "AAAA")]

    async def look(context: ToolContext, arguments: Mapping[str, Any]) -> list[TextBlock | ImageBlock]:
        return list(blocks)

    assert (await toolbox(tool(look)).run(call(path="a"), CONTEXT)).content == blocks


async def test_results_can_be_encoded_whatever_a_tool_gives() -> None:
    """A name of a file need not be Unicode."""

    async def look(context: ToolContext, arguments: Mapping[str, Any]) -> str | list[TextBlock]:
        if arguments["path"] == "refuse":
            raise ToolFailed("no \udcff")
        return "a \udcff" if arguments["path"] == "text" else [TextBlock("a \udcff")]

    box = toolbox(tool(look))
    results = [await box.run(call(path=path), CONTEXT) for path in ("text", "blocks", "refuse")]
    assert [text_of(result) for result in results] == ["a \ufffd", "a \ufffd", "no \ufffd"]
    assert all(encode_message(result) for result in results)


async def test_an_unknown_tool_is_named_with_those_there_are() -> None:
    """SK-099."""
    result = await toolbox(tool(say_path)).run(call("lok"), CONTEXT)
    assert (result.is_error, text_of(result)) == (True, "there is no tool 'lok'; there are: look")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "arguments: 'path' is a required property"),
        ({"path": 1}, "path: 1 is not of type 'string'"),
        ({"path": "a", "lines": [1, 0]}, "lines[1]: 0 is less than the minimum of 1"),
        ({"path": "a", "x": 1}, "arguments: Additional properties are not allowed ('x' was unexpected)"),
    ],
)
async def test_wrong_arguments_never_reach_the_tool(arguments: dict[str, Any], words: str) -> None:
    """SK-089."""

    async def look(context: ToolContext, arguments: Mapping[str, Any]) -> str:
        raise AssertionError("was run")

    result = await toolbox(tool(look)).run(call(**arguments), CONTEXT)
    assert (result.is_error, text_of(result)) == (True, f"look was not run, its arguments are wrong: {words}")


async def test_all_problems_are_told_but_not_without_end() -> None:
    result = await toolbox(tool(say_path)).run(call(lines=list(range(-50, 0))), CONTEXT)
    assert text_of(result).count(";") == 9


async def test_a_failure_is_told_in_the_tools_own_words() -> None:
    """SK-099."""

    async def look(context: ToolContext, arguments: Mapping[str, Any]) -> str:
        raise ToolFailed("no such file")

    result = await toolbox(tool(look)).run(call(path="a"), CONTEXT)
    assert (result.is_error, text_of(result)) == (True, "no such file")


async def test_a_defect_of_a_tool_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def look(context: ToolContext, arguments: Mapping[str, Any]) -> str:
        raise KeyError("secret place")

    with caplog.at_level(logging.ERROR):
        result = await toolbox(tool(look)).run(call(path="a"), CONTEXT)
    assert result.is_error and "secret" not in text_of(result)
    assert "secret" in caplog.text


async def test_a_call_has_a_time_limit() -> None:
    stopped = asyncio.Event()

    async def look(context: ToolContext, arguments: Mapping[str, Any]) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError("not reached")

    result = await toolbox(tool(look, timeout_s=0.01)).run(call(path="a"), CONTEXT)
    assert (result.is_error, text_of(result)) == (True, "look was stopped after 0.01 seconds")
    assert stopped.is_set()


async def test_who_may_not_is_told_why_and_the_log_knows(caplog: pytest.LogCaptureFixture) -> None:
    async def look(context: ToolContext, arguments: Mapping[str, Any]) -> str:
        raise AssertionError("was run")

    box = Toolbox([tool(look)], permits=lambda context, tool: f"{context.role} may not use {tool.permission}")
    with caplog.at_level(logging.WARNING):
        result = await box.run(call(path="a"), CONTEXT)
    assert (result.is_error, text_of(result)) == (True, "user may not use files.read")
    assert "refused u the tool look" in caplog.text


async def test_cancelling_a_call_is_no_result() -> None:
    async def look(context: ToolContext, arguments: Mapping[str, Any]) -> str:
        await asyncio.Event().wait()
        return ""

    task = asyncio.create_task(toolbox(tool(look)).run(call(path="a"), CONTEXT))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_tool_that_is_cancelled_from_within_has_failed() -> None:
    """Only who cancels the call ends it without a result."""

    async def look(context: ToolContext, arguments: Mapping[str, Any]) -> str:
        waiting = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(waiting.cancel)
        await waiting
        return ""

    result = await toolbox(tool(look)).run(call(path="a"), CONTEXT)
    assert (result.is_error, text_of(result)) == (True, "look was interrupted")


class Coming:
    """Tools that come and go."""

    def __init__(self) -> None:
        self.tools: list[Tool] = []

    async def look(self) -> list[Tool]:
        return self.tools


def named(name: str, said: str, schema: dict[str, Any] | None = None) -> Tool:
    async def say(context: ToolContext, arguments: Mapping[str, Any]) -> str:
        return said

    return Tool(name=name, description=said, parameters=schema or {"type": "object"}, permission="x", run=say)


async def test_tools_come_and_go() -> None:
    coming = Coming()
    box = Toolbox([named("a", "own")], permits=lambda context, tool: None, more=coming.look)
    coming.tools = [named("b", "came"), named("a", "other")]
    assert [each.name for each in box.definitions()] == ["a"]  # until somebody looks
    assert [each.description for each in await box.refresh()] == ["own", "came"]
    first = box.definitions()
    assert [each.description for each in first] == ["own", "came"]
    assert text_of(await box.run(call("a"), CONTEXT)) == "own"
    assert text_of(await box.run(call("b"), CONTEXT)) == "came"
    await box.refresh()
    assert box.definitions() is first
    coming.tools = []
    assert [each.description for each in await box.refresh()] == ["own"]
    assert text_of(await box.run(call("b"), CONTEXT)) == "there is no tool 'b'; there are: a"


async def test_arguments_have_to_pass_the_schema_of_now() -> None:
    coming = Coming()
    box = Toolbox([], permits=lambda context, tool: None, more=coming.look)
    for kind, given in (("integer", 1), ("string", "1"), ("array", [])):
        coming.tools = [named("b", kind, {"type": "object", "properties": {"x": {"type": kind}}})]
        await box.refresh()
        assert not (await box.run(call("b", x=given), CONTEXT)).is_error
        assert (await box.run(call("b", x=None), CONTEXT)).is_error
    assert len(box._validators) == 1
    coming.tools = []
    await box.refresh()
    assert not box._validators


async def test_a_schema_that_cannot_be_applied_is_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    box = toolbox(named("b", "", {"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}}))
    result = await box.run(call("b", x=1), CONTEXT)
    assert text_of(result) == "b failed for a reason of its own; the gateway's log has it"
    assert result.is_error and "the tool b failed" in caplog.text
