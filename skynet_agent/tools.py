"""What a tool is, and what happens when a model calls one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from skynet_agent.messages import Json, TextBlock, ToolCallBlock, ToolResultMessage, UserBlock
from skynet_agent.reading import repair
from skynet_agent.requests import ToolDefinition
from skynet_memory.ids import Role, RunId, SessionKey, UserId, now_ms

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

log = logging.getLogger(__name__)

MOST_PROBLEMS = 10
"""So many problems of a call's arguments are told at once."""


class ToolFailed(Exception):  # noqa: N818 - the tool has failed, and says why
    """A tool could not do what was asked, in words for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """For whom and where a tool runs. ``update`` tells the clients that watch the run what there is of the output."""

    user_id: UserId
    role: Role
    session_key: SessionKey
    run_id: RunId
    permissions: frozenset[str] = frozenset()
    """What the person may do with what is the own, in the words of ``Tool.permission``."""
    group: UserId | None = None
    """The room in which the person asks, if it is one: others read the answer."""
    call_id: str = ""
    update: Callable[[str], None] = field(default=lambda text: None)

    @property
    def owner(self) -> UserId:
        """Whose files and memories a tool works with: the room's, in a room, so that nobody's own are shown there."""
        return self.group or self.user_id


ToolFunction: TypeAlias = Callable[[ToolContext, Mapping[str, Json]], Awaitable[str | Sequence[UserBlock]]]
"""Arguments have passed the tool's schema. Raises ``ToolFailed``; cancelling it stops what it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something a model may do.

    ``parameters`` is a JSON schema (2020-12) of type object, the one the model sees and the one arguments have to pass.
    ``permission`` is what a person needs for it. ``timeout_s`` is for one call. ``needs_sandbox``: it runs foreign
    code, which a sandbox is to hold; that is for whoever runs it to see to, the toolbox asks for none. ``plugin`` is
    the id of the plugin it comes from, empty for the gateway's own.
    """

    name: str
    description: str
    parameters: Mapping[str, Json]
    permission: str
    run: ToolFunction
    timeout_s: float = 60.0
    needs_sandbox: bool = False
    plugin: str = ""


class Toolbox:
    """The tools there are, in one place.

    Args:
        permits: whether somebody may use a tool: None, or why not, in words for the model and the person.
        more: the tools that come and go, the same object until one does. A name that ``tools`` have is theirs.
        refused: told of calls that somebody may not make.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        permits: Callable[[ToolContext, Tool], str | None],
        more: Callable[[], Awaitable[Sequence[Tool]]] | None = None,
        refused: Callable[[ToolContext, Tool], None] = lambda context, tool: None,
    ) -> None:
        self._own = {tool.name: tool for tool in tools}
        self._tools = self._own
        self._permits = permits
        self._more = more
        self._on_refused = refused
        self._seen: Sequence[Tool] = ()
        self._validators: dict[str, Validator] = {}
        self._definitions: tuple[ToolDefinition, ...] | None = None

    async def refresh(self) -> Sequence[Tool]:
        """Look which tools there are now; done before each message, and nothing else changes them."""
        more = await self._more() if self._more is not None else ()
        if more is not self._seen:
            before, self._seen = self._tools, more
            self._tools = self._own | {tool.name: tool for tool in more if tool.name not in self._own}
            self._definitions = None
            for name in before:
                if name not in self._tools or self._tools[name].parameters is not before[name].parameters:
                    self._validators.pop(name, None)
        return list(self._tools.values())

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """What a model is told, the same for everybody: who may use which is not the model's to decide."""
        if self._definitions is None:
            self._definitions = tuple(
                ToolDefinition(name=tool.name, description=tool.description, parameters=tool.parameters)
                for tool in self._tools.values()
            )
        return self._definitions

    def get(self, name: str) -> Tool | None:
        """The tool of this name, if there is one now."""
        return self._tools.get(name)

    def why_not(self, context: ToolContext, tool: Tool) -> str | None:
        """Why somebody may not use a tool; None if they may."""
        return self._permits(context, tool)

    def refused(self, context: ToolContext) -> list[str]:
        """The names of the tools that somebody may not use."""
        return [tool.name for tool in self._tools.values() if self._permits(context, tool) is not None]

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """Carry out a call. Whatever goes wrong is a result that the model can read (SK-099)."""
        try:
            content = await self._run(call, context)
        except ToolFailed as exc:
            return tool_result(call, str(exc), is_error=True)
        return tool_result(call, content)

    async def _run(self, call: ToolCallBlock, context: ToolContext) -> str | Sequence[UserBlock]:
        tool = self._tools.get(call.name)
        if tool is None:
            raise ToolFailed(f"there is no tool {call.name!r}; there are: {', '.join(self._tools) or 'none'}")
        if (reason := self._permits(context, tool)) is not None:
            log.warning("refused %s the tool %s: %s", context.user_id, tool.name, reason)
            self._on_refused(context, tool)
            raise ToolFailed(reason)
        try:
            await self._validate(tool, call.arguments)
            async with asyncio.timeout(tool.timeout_s) as deadline:
                return await tool.run(context, call.arguments)
        except TimeoutError as exc:
            if deadline.expired():
                raise ToolFailed(f"{tool.name} was stopped after {tool.timeout_s:g} seconds") from exc
            raise ToolFailed(f"{tool.name} timed out") from exc
        except ToolFailed:
            raise
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.warning("the tool %s gave up: something that it waited for was cancelled", tool.name)
            raise ToolFailed(f"{tool.name} was interrupted") from exc
        except Exception as exc:
            log.exception("the tool %s failed", tool.name)
            raise ToolFailed(f"{tool.name} failed for a reason of its own; the gateway's log has it") from exc

    async def is_valid(self, tool: Tool, arguments: Mapping[str, Json]) -> bool:
        """Whether the tool takes these arguments; :meth:`run` says why not."""
        try:
            await self._validate(tool, arguments)
        except ToolFailed:
            return False
        return True

    async def _validate(self, tool: Tool, arguments: Mapping[str, Json]) -> None:
        validator = self._validators.get(tool.name)
        if validator is None:
            validator = await asyncio.to_thread(_validator, tool.parameters)
            if self._tools.get(tool.name) is tool:  # it may have gone meanwhile
                self._validators[tool.name] = validator
        problems = []
        for error in validator.iter_errors(arguments):
            place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
            problems.append(f"{place.lstrip('.') or 'arguments'}: {error.message[:300]}")
            if len(problems) == MOST_PROBLEMS:
                break
        if problems:
            raise ToolFailed(f"{tool.name} was not run, its arguments are wrong: {'; '.join(problems)}")


def tool_result(
    call: ToolCallBlock, content: str | Sequence[UserBlock], *, is_error: bool = False
) -> ToolResultMessage:
    """The result of ``call``, with the time of now; texts that cannot be encoded are repaired."""
    blocks: list[UserBlock] = [TextBlock(content)] if isinstance(content, str) else list(content)
    whole = [TextBlock(repair(block.text)) if isinstance(block, TextBlock) else block for block in blocks]
    return ToolResultMessage(call.id, call.name, whole, is_error, now_ms())


def _validator(schema: Mapping[str, Json]) -> Validator:
    from jsonschema import Draft202012Validator  # up to 0.1 s, and only for who uses tools

    return Draft202012Validator(schema)
