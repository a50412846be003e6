"""Code of one's own around messages, tools and models: what the author of a hook imports.

See ``docs/hooks.md``. A gate is asked before something happens and may change or stop it; an observer is told after it
has happened.
"""

from skynet.hooks.bus import Block, HookBus, Stopped, on
from skynet.hooks.events import (
    EVENTS,
    GATES,
    HOOKS,
    AgentCompleted,
    AgentStarted,
    BeforeMessage,
    BeforeModelCall,
    BeforeToolCall,
    Event,
    Gate,
    Hook,
    HookUsage,
    HookUser,
    MessageReceived,
    MessageSent,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelMessage,
    SessionEnded,
    SessionStarted,
    ToolCalled,
    ToolReturned,
    thawed,
)
from skynet.hooks.loading import DIRECTORY, HookProblem, HooksRefused, load_hooks

__all__ = [
    "DIRECTORY",
    "EVENTS",
    "GATES",
    "HOOKS",
    "AgentCompleted",
    "AgentStarted",
    "BeforeMessage",
    "BeforeModelCall",
    "BeforeToolCall",
    "Block",
    "Event",
    "Gate",
    "Hook",
    "HookBus",
    "HookProblem",
    "HookUsage",
    "HookUser",
    "HooksRefused",
    "MessageReceived",
    "MessageSent",
    "ModelAnswered",
    "ModelAsked",
    "ModelFailed",
    "ModelMessage",
    "SessionEnded",
    "SessionStarted",
    "Stopped",
    "ToolCalled",
    "ToolReturned",
    "load_hooks",
    "on",
    "thawed",
]
