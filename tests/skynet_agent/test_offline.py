"""The offline assistant: honest about what it is, and right where it can be."""

import asyncio
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.auth.keys import KeyAuth
from skynet_agent.endpoint import Endpoint
from skynet_agent.events import Ended, Part, TextDelta, ToolCallDelta
from skynet_agent.http_client import HttpClient
from skynet_agent.messages import AssistantMessage, Message, TextBlock, ToolResultMessage, Usage, UserMessage
from skynet_agent.offline import AGAIN, HELP, NOT_ANSWERING, NOT_CONFIGURED, answer, reply, stream
from skynet_agent.offline_tools import wish_in
from skynet_agent.providers import OFFLINE
from skynet_agent.requests import ModelOptions, ModelRequest, ToolDefinition

NOW = datetime(2026, 11, 21, 1, 20, tzinfo=UTC)
ENDPOINT = Endpoint(OFFLINE, KeyAuth(OFFLINE), HttpClient(), lambda: NOW)


def user(text: str) -> UserMessage:
    return UserMessage([TextBlock(text)], 1)


def assistant(api: str) -> AssistantMessage:
    return AssistantMessage([TextBlock("hello")], api, "offline", "assistant", "stop", 2)


def say(text: str, *before: str) -> str:
    return reply(text, before, NOW)


@pytest.mark.parametrize(
    ("messages", "configured", "introduction"),
    [
        ([user("help")], False, NOT_CONFIGURED + "\n\n"),
        ([user("help")], True, NOT_ANSWERING + "\n\n"),
        ([user("hi"), assistant("offline"), user("help")], False, AGAIN + " "),
        ([user("hi"), assistant("openai-completions"), user("help")], True, NOT_ANSWERING + "\n\n"),
    ],
)
def test_it_says_who_it_is_first(messages: list[Message], configured: bool, introduction: str) -> None:
    assert answer(messages, NOW, configured=configured) == introduction + HELP


def test_it_says_how_to_get_a_model() -> None:
    for word in ("offline", "no model is configured", "OPENAI_API_KEY", "[providers.lab]", "skynet.toml"):
        assert word in NOT_CONFIGURED


def test_no_message_at_all() -> None:
    assert answer([], NOW).endswith(HELP)


@pytest.mark.parametrize(
    "text",
    [
        "what time is it?",
        "What's the time",
        "time",
        "what is the date today?",
        "what day is it",
        "the current time please",
        "time and date",
    ],
)
def test_time(text: str) -> None:
    assert say(text) == "It is 01:20 on Saturday, 21 November 2026 (UTC)."


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("2+2", "2+2 = 4"),
        ("What is 12 * (3 + 4)?", "12 * (3 + 4) = 84"),
        ("calculate 0.1 + 0.2", "0.1 + 0.2 = 0.3"),
        ("how much is 10 / 4 =", "10 / 4 = 2.5"),
        ("1/3", "1/3 = 0.333333333333"),
        ("7 // 2", "7 // 2 = 3"),
        ("-7 % 3", "-7 % 3 = 2"),
        ("2^10", "2**10 = 1024"),
        ("2**-1", "2**-1 = 0.5"),
        ("2 ** 0.5", "2 ** 0.5 = 1.41421356237"),
        ("what is 3 times 4 plus 1", "3 * 4 + 1 = 13"),
        ("8 divided by 2", "8 / 2 = 4"),
        ("3 × 4", "3 * 4 = 12"),
        ("3x4", "3*4 = 12"),
        ("1/0", "That divides by zero."),
        ("0 ** -1", "That divides by zero."),
        ("5 % 0", "That divides by zero."),
        ("9**9**9", "That number is too large for me."),
        ("2 ** 4000 / 3", "That number is too large for me."),
        ("2 ** 100000", "That number is too large for me."),
        ("9.9 ** 9999.5", "That number is too large for me."),
        ("1+" * 200 + "1", "That is more arithmetic than I can do without a model."),
    ],
)
def test_arithmetic(text: str, result: str) -> None:
    assert say(text) == result


@pytest.mark.parametrize(
    "text", ["2 +", "((", "1 2", "(-8) ** 0.5", "007", "2026-11-", "5", "__import__('os') + 1", "+" * 99 + "1."]
)
def test_what_is_no_arithmetic(text: str) -> None:
    assert "=" not in say(text) or text == "+" * 99 + "1."


@given(st.text(alphabet="0123456789.+-*/%() ^e", max_size=220))
def test_no_expression_raises_or_takes_long(text: str) -> None:
    assert say(text)


@pytest.mark.parametrize("text", ["+" * 1_000_000 + "x", "a" + " " * 1_000_000 + "b", "(" * 1_000_000])
def test_a_long_message_is_not_looked_at_for_longer(text: str) -> None:
    """Anybody may send one, and everybody waits while it is read."""
    assert say(text).startswith("I cannot answer that")


@pytest.mark.parametrize(
    ("text", "said"),
    [("echo Hello  World!", "Hello  World!"), ("Repeat after me: one\ntwo", "one\ntwo"), ("say é", "é")],
)
def test_echo(text: str, said: str) -> None:
    assert say(text) == said


def test_what_did_i_say() -> None:
    assert say("What did I say?") == "This is your first message in this conversation."
    assert say("what did I just say?", "one", "two") == "You said: two"
    messages = [user("[Sat 2026-11-21 01:19 UTC] my cat is Tom"), assistant("offline"), user("what did i say")]
    assert answer(messages, NOW) == f"{AGAIN} You said: my cat is Tom"


@pytest.mark.parametrize(
    "text", ["remember that I like tea", "run ls", "Remind me tomorrow", "please execute it", "forget me"]
)
def test_it_claims_nothing_it_has_not_done(text: str) -> None:
    assert say(text).startswith("I cannot do that yet")
    assert "Nothing was done" in say(text)


def test_everything_else_needs_a_model() -> None:
    for text in (
        "Who was Ada Lovelace?",
        "what is the time complexity of quicksort?",
        "what day did the war end in 1945",
    ):
        assert say(text).startswith("I cannot answer that without a model.")


async def test_it_streams_words() -> None:
    request = ModelRequest(messages=[user("[Sat 2026-11-21 01:20 UTC] echo  a b\n")])
    parts = [part async for part in stream(ENDPOINT, OFFLINE.models[0], request)]
    assert parts[-1] == Ended("stop", Usage(0, 0, 0, 0, 0))
    texts = [part.text for part in parts if isinstance(part, TextDelta)]
    assert texts[:3] == ["I", " am", " Skynet's"]
    assert "".join(texts) == f"{NOT_CONFIGURED}\n\na b"


async def test_a_long_answer_lets_others_in() -> None:
    request = ModelRequest(messages=[user("echo " + "a " * 1000)])
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    async for _ in stream(ENDPOINT, OFFLINE.models[0], request):
        pass
    other.cancel()
    assert turns > 10


# Tools

TOOLS = (
    "list_files",
    "read_file",
    "search_files",
    "write_file",
    "execute_command",
    "memory_learn",
    "memory_search",
    "memory_forget",
    "history_search",
)


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("list my files", "list_files", {}),
        ("Show me the files in a/b", "list_files", {"path": "a/b"}),
        ("ls", "list_files", {}),
        ("ls a", "list_files", {"path": "a"}),
        ("please read notes.txt", "read_file", {"path": "notes.txt"}),
        ('read the file "my notes.txt"', "read_file", {"path": "my notes.txt"}),
        ("search for milk", "search_files", {"query": "milk"}),
        ("write buy milk and bread to notes.txt", "write_file", {"content": "buy milk and bread", "path": "notes.txt"}),
        ("run ls -l | wc", "execute_command", {"command": "ls -l | wc"}),
        (
            "Remember that my favourite colour is green.",
            "memory_learn",
            {"category": "preference", "key": "favourite colour", "value": "green"},
        ),
        (
            "remember: I like tea",
            "memory_learn",
            {"category": "preference", "key": "I like tea", "value": "I like tea"},
        ),
        ("note that our bike is blue", "memory_learn", {"category": "fact", "key": "bike", "value": "blue"}),
        (
            "please remember always answer in German",
            "memory_learn",
            {"category": "instruction", "key": "always answer in German", "value": "always answer in German"},
        ),
        ("remember to buy milk", "memory_learn", {"category": "fact", "key": "to buy milk", "value": "to buy milk"}),
        ("what do you know about me?", "memory_search", {}),
        ("What do you know about Mexico?", "memory_search", {"query": "Mexico"}),
        ("tell me what you remember", "memory_search", {}),
        ("forget my favourite colour", "memory_forget", {"key": "favourite colour"}),
        ("Forget that I like tea.", "memory_forget", {"key": "I like tea"}),
        ("what did I say about the plumber?", "history_search", {"query": "the plumber"}),
    ],
)
def test_what_is_understood_of_tools(text: str, tool: str, arguments: dict[str, str]) -> None:
    wish = wish_in(text, TOOLS)
    assert wish is not None
    assert (wish.tool, wish.arguments) == (tool, arguments)
    assert wish_in(text, set(TOOLS) - {tool}) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "what can you read",
        "the files",
        "x" * 5000,
        "read",
        "run",
        "remember",
        "do you remember me?",
        "forget everything",
        "forget me.",
        "what did I say?",
        "remember " + "x" * 5000,
    ],
)
def test_what_is_no_wish(text: str) -> None:
    assert wish_in(text, TOOLS) is None


@given(st.text())
def test_any_text_is_a_wish_or_none(text: str) -> None:
    wish = wish_in(text, TOOLS)
    assert wish is None or wish.tool in TOOLS


async def parts_of(*messages: Message) -> list[Part]:
    options = ModelOptions(tools=[ToolDefinition(name=name) for name in ("read_file",)])
    return [
        part async for part in stream(ENDPOINT, OFFLINE.models[0], ModelRequest(messages=messages, options=options))
    ]


async def test_a_tool_is_called_and_its_result_told() -> None:
    asked = user("[Sat 2026-11-21 01:20 UTC] read notes.txt")
    call, ended = await parts_of(asked)
    assert isinstance(call, ToolCallDelta)
    assert (call.name, call.arguments) == ("read_file", '{"path":"notes.txt"}')
    assert isinstance(ended, Ended) and ended.stop_reason == "toolUse"
    for is_error, words in ((False, "Here it is:\n\nmilk"), (True, "That did not work:\n\nmilk")):
        result = ToolResultMessage(call.id, "read_file", [TextBlock("milk")], is_error, 3)
        answered = AssistantMessage([], "offline", "offline", "assistant", "toolUse", 2)
        parts = await parts_of(asked, answered, result)
        text = "".join(part.text for part in parts if isinstance(part, TextDelta))
        assert text == f"{NOT_CONFIGURED} {words}"


@pytest.mark.parametrize("tool", ["memory_learn", "memory_forget"])
def test_what_was_remembered_or_forgotten_is_done(tool: str) -> None:
    result = ToolResultMessage("c", tool, [TextBlock("bike: blue")], False, 3)
    assert answer([user("remember my bike is blue"), result], NOW).endswith(" Done:\n\nbike: blue")


def test_what_was_written_is_done() -> None:
    result = ToolResultMessage("c", "write_file", [TextBlock("notes.txt: created, 8 bytes")], False, 3)
    assert answer([user("write buy milk to notes.txt"), result], NOW).endswith(" Done:\n\nnotes.txt: created, 8 bytes")


async def test_the_help_tells_of_the_tools_there_are() -> None:
    text = "".join(part.text for part in await parts_of(user("help")) if isinstance(part, TextDelta))
    assert text.endswith("I can also read one (read notes.txt).")
