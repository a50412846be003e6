"""What hooks are told: a frozen dataclass for each point in the life of a message.

The docstrings here are the reference of ``docs/hooks.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from skynet_memory.ids import Role, RunId, SessionKey, UserId, now_ms

Json: TypeAlias = Any
"""A JSON value. In an event its objects are read-only mappings and its arrays are tuples; ``thawed`` gives dict and
list."""
RunStatus: TypeAlias = Literal["ok", "error", "aborted", "timeout", "blocked"]

MOST_VALUES = 1_000_000
"""A JSON value of an event has no more parts; one that holds itself has no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookUser:
    """The person on whose behalf something happens."""

    id: UserId
    """The same for ever."""
    role: Role
    """``admin``, ``user`` or ``child``."""
    display_name: str
    """The name for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookUsage:
    """Tokens, and what they cost."""

    input_tokens: int
    """With those that the provider's cache held."""
    output_tokens: int
    """What the model wrote, its thinking among it."""
    cost_microusd: int | None
    """Millionths of a US dollar; None if the price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMessage:
    """One message as the model is given it, as far as it is text."""

    role: Literal["user", "assistant", "tool"]
    """``tool`` is the result of one."""
    text: str
    """Its texts, one after the other."""


# Each event is itself: no two are compared, and what somebody logs of one by mistake tells nothing that was said. It
# also makes each class in half the time, which is part of every start.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Event:
    """What every event has."""

    NAME: ClassVar[str]
    """The point's name, of shell hooks and in the log."""

    user: HookUser
    """Who the message is from, known before the first hook is called."""
    session: SessionKey
    """The conversation's key: ``user:<id>:agent:<id>:<name>``, or ``group:<id>:…``."""
    run: RunId | None = None
    """The run, from the message to its answer; None for what belongs to none."""
    at_ms: int = field(default_factory=now_ms)
    """When it happened, in milliseconds since 1970."""

    def __repr__(self) -> str:
        return f"<{self.NAME} of {self.user.id} in run {self.run}>"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Gate(Event):
    """Something is about to happen. Handlers are asked one after the other, and each may change or stop it."""

    CHANGEABLE: ClassVar[frozenset[str]]
    """The fields that a handler may change. Anything else that is changed stops the action."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Hook(Event):
    """Something happened. Handlers are told, and nobody waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BeforeMessage(Gate):
    """A person's message was stored and is about to be answered. A stop is the answer: the person gets the reason, and
    no model is called. What was stored stays as it was sent, but no later call of a model finds it either."""

    NAME = "before_message"
    CHANGEABLE = frozenset({"text"})

    text: str
    """What the person wrote. A change is what models are given of it, now and later."""
    images: int = 0
    """So many images came with it."""
    source: str = ""
    """What it came by: the client or channel, as far as it said."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BeforeModelCall(Gate):
    """A model is about to be asked, once in each round of a run. A stop ends the run with what there is.
    ``event.last_user_text`` is the text of the last of ``messages`` that is the person's."""

    NAME = "before_model_call"
    CHANGEABLE = frozenset({"system_suffix"})

    model: str
    """As it was asked for: ``provider/model``, an alias or a pool; empty for the default."""
    system: tuple[str, ...]
    """The parts of the prompt."""
    messages: tuple[ModelMessage, ...]
    """The conversation that is sent, oldest first."""
    round: int = 1
    """Which call of the run it is, from 1."""
    system_suffix: str = ""
    """Put at the end of the prompt, for this call alone."""

    @property
    def last_user_text(self) -> str:
        """The person's last message; "" if there is none."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BeforeToolCall(Gate):
    """A model wants to use a tool. A stop skips this call: the model is given the reason as the tool's failure, and the
    run goes on. What is let through still has to pass the person's permissions and the tool's schema."""

    NAME = "before_tool_call"
    CHANGEABLE = frozenset({"arguments"})

    tool: str
    """The tool's name, as the model gave it."""
    call_id: str
    """The same for the call and its result."""
    arguments: Mapping[str, Json]
    """What the model gave."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", _frozen_object(self.arguments))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SessionStarted(Hook):
    """A conversation began: with its first message, or anew after a reset."""

    NAME = "session_start"

    reason: Literal["new", "reset"] = "new"
    """Which of the two it was."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SessionEnded(Hook):
    """A conversation ended: it was reset, or deleted."""

    NAME = "session_end"

    reason: Literal["reset", "deleted"]
    """Which of the two it was."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MessageReceived(Hook):
    """A person's message has been through its gates."""

    NAME = "message_received"

    text: str
    """As the gates left it."""
    images: int = 0
    """So many images came with it."""
    source: str = ""
    """What it came by: the client or channel, as far as it said."""
    blocked: str = ""
    """The reason, if a gate stopped it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MessageSent(Hook):
    """An answer is complete and stored, and on its way to the person."""

    NAME = "message_sent"

    text: str
    """All of it, also what was shown before a run was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AgentStarted(Hook):
    """A run's turn has come: its message is past the gates and the assistant sets to work."""

    NAME = "agent_start"

    model: str = ""
    """As it was asked for; empty for the default."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AgentCompleted(Hook):
    """A run ended. There is one for each ``AgentStarted``, however it ended."""

    NAME = "agent_complete"

    status: RunStatus
    """``aborted``: somebody stopped it; ``timeout``: it took too long; ``blocked``: a gate stopped it; ``error``: it
    failed."""
    usage: HookUsage
    """Of all its model calls."""
    rounds: int = 1
    """So often a model was asked."""
    duration_ms: int = 0
    """From its start to its end."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ToolCalled(Hook):
    """A tool is used; its gates have let it through, or stopped it."""

    NAME = "tool_call"

    tool: str
    """The tool's name, as the model gave it."""
    call_id: str
    """The same for the call and its result."""
    arguments: Mapping[str, Json]
    """As the gates left them."""
    blocked: str = ""
    """The reason, if a gate stopped it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", _frozen_object(self.arguments))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ToolReturned(Hook):
    """A tool's result, as the model is given it."""

    NAME = "tool_result"

    tool: str
    """The tool's name, as the model gave it."""
    call_id: str
    """The same for the call and its result."""
    text: str
    """As far as it is text."""
    is_error: bool
    """It failed, was refused or was stopped; the text says why."""
    duration_ms: int = 0
    """How long the call took."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ModelAsked(Hook):
    """A model is asked; its gates have let it through."""

    NAME = "llm_input"

    model: str
    """As it was asked for; empty for the default."""
    system: tuple[str, ...]
    """The parts of the prompt, with what gates added."""
    messages: tuple[ModelMessage, ...]
    """The conversation that is sent, oldest first."""
    round: int = 1
    """Which call of the run it is, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ModelAnswered(Hook):
    """A model has answered."""

    NAME = "llm_output"

    provider: str
    """Who answered."""
    model: str
    """Which of its models."""
    text: str
    """What it wrote, without its thinking."""
    tools: tuple[str, ...]
    """The tools that it wants to use, one for each call."""
    stop_reason: str
    """``stop``, ``length`` or ``toolUse``."""
    usage: HookUsage
    """Of this call."""
    round: int = 1
    """Which call of the run it is, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ModelFailed(Hook):
    """No model could answer, after all that was tried."""

    NAME = "llm_error"

    model: str
    """As it was asked for; empty for the default."""
    error: str
    """The kind of failure, as ``RateLimited``."""
    words: str
    """As the person is told."""
    round: int = 1
    """Which call of the run it is, from 1."""


GATES: tuple[type[Gate], ...] = (BeforeMessage, BeforeModelCall, BeforeToolCall)
HOOKS: tuple[type[Hook], ...] = (
    MessageReceived,
    MessageSent,
    ToolCalled,
    ToolReturned,
    AgentStarted,
    AgentCompleted,
    SessionStarted,
    SessionEnded,
    ModelAsked,
    ModelAnswered,
    ModelFailed,
)
EVENTS: Mapping[str, type[Event]] = {event.NAME: event for event in (*GATES, *HOOKS)}
"""Every event by its name."""


def frozen(value: Json) -> Json:
    """A copy of a JSON value that nobody can change.

    Raises:
        TypeError: it is none.
        ValueError: it has more than ``MOST_VALUES`` parts.
    """
    return _rebuilt(value, lambda items: MappingProxyType(dict(items)), tuple)


def _frozen_object(value: object) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise TypeError(f"arguments are an object, and not {type(value).__name__}")
    copy: Mapping[str, Json] = frozen(value)
    return copy


def thawed(value: Json) -> Json:
    """A copy of a JSON value of an event, in dict and list."""
    return _rebuilt(value, dict, list)


def _rebuilt(
    value: Json,
    of_items: Callable[[Iterable[tuple[str, Json]]], Mapping[str, Json]],
    of_values: Callable[[Iterable[Json]], Json],
) -> Json:
    """Without recursion: a model may nest its arguments as deep as it likes."""
    containers: list[Json] = []
    left, count = [value], 0
    while left:
        part = left.pop()
        count += 1
        if count > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES} values, or a value that holds itself")
        if isinstance(part, Mapping):
            if not all(isinstance(key, str) for key in part):
                raise TypeError("a JSON object has texts for keys")
            containers.append(part)
            left += part.values()
        elif isinstance(part, list | tuple):
            containers.append(part)
            left += part
        elif part is not None and not isinstance(part, str | int | float):
            raise TypeError(f"{type(part).__name__} is no JSON value")
    made: dict[int, Json] = {}
    for container in reversed(containers):  # what is inside comes after what it is in
        if isinstance(container, Mapping):
            made[id(container)] = of_items([(key, made.get(id(part), part)) for key, part in container.items()])
        else:
            made[id(container)] = of_values([made.get(id(part), part) for part in container])
    return made.get(id(value), value)
