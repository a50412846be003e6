"""Events of one person, as the gateway would make them."""

from skynet.hooks import (
    AgentCompleted,
    AgentStarted,
    BeforeMessage,
    BeforeModelCall,
    BeforeToolCall,
    Event,
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
)
from skynet_memory.ids import Role, RunId, SessionKey, UserId

ADA = HookUser(id=UserId("0190-ada"), role=Role.USER, display_name="Ada")
SESSION = SessionKey("user:0190-ada:agent:main:main")
RUN = RunId("run-1")
USAGE = HookUsage(input_tokens=10, output_tokens=3, cost_microusd=None)
HELLO = ModelMessage(role="user", text="Hello")


def message(text: str = "Hello", user: HookUser = ADA) -> BeforeMessage:
    return BeforeMessage(user=user, session=SESSION, run=RUN, text=text, source="cli")


def sent(text: str = "Hi") -> MessageSent:
    return MessageSent(user=ADA, session=SESSION, run=RUN, text=text)


def tool_call(**arguments: object) -> BeforeToolCall:
    return BeforeToolCall(user=ADA, session=SESSION, run=RUN, tool="read_file", call_id="c1", arguments=arguments)


def one_of_each() -> list[Event]:
    """In the order of a run with a tool."""
    session, run = SESSION, RUN
    return [
        SessionStarted(user=ADA, session=session),
        message(),
        MessageReceived(user=ADA, session=session, run=run, text="Hello"),
        AgentStarted(user=ADA, session=session, run=run),
        BeforeModelCall(user=ADA, session=session, run=run, model="lab/m", system=("Be kind.",), messages=(HELLO,)),
        ModelAsked(user=ADA, session=session, run=run, model="lab/m", system=("Be kind.",), messages=(HELLO,)),
        ModelAnswered(
            user=ADA,
            session=session,
            run=run,
            provider="lab",
            model="m",
            text="",
            tools=("read_file",),
            stop_reason="toolUse",
            usage=USAGE,
        ),
        tool_call(path="a.txt"),
        ToolCalled(user=ADA, session=session, run=run, tool="read_file", call_id="c1", arguments={"path": "a.txt"}),
        ToolReturned(user=ADA, session=session, run=run, tool="read_file", call_id="c1", text="A", is_error=False),
        ModelFailed(user=ADA, session=session, run=run, model="lab/m", error="RateLimited", words="try later"),
        AgentCompleted(user=ADA, session=session, run=run, status="error", usage=USAGE),
        sent(),
        SessionEnded(user=ADA, session=session, reason="deleted"),
    ]
