"""The built-in provider that needs no network and no model.

A first start works end to end with it, and it is honest about what it is: it answers what can be answered without a
model (the time, arithmetic, what was said) and says so about everything else. The same request at the same time always
gives the same answer.
"""

from __future__ import annotations

import ast
import asyncio
import operator
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from fractions import Fraction

import msgspec

from skynet_agent.endpoint import Endpoint
from skynet_agent.events import Ended, Part, TextDelta, ToolCallDelta
from skynet_agent.messages import AssistantMessage, Message, ToolResultMessage, Usage, UserMessage, text_of
from skynet_agent.offline_tools import HELP as TOOL_HELP
from skynet_agent.offline_tools import wish_in
from skynet_agent.providers import ModelInfo
from skynet_agent.requests import ModelRequest
from skynet_memory.ids import new_id

NOT_CONFIGURED = (
    "I am Skynet's offline assistant: no model is configured. To get one, set a provider's key in the environment, for "
    "example OPENAI_API_KEY, or add a section such as [providers.lab] with base_url and api_key to skynet.toml, and "
    "restart the gateway."
)
NOT_ANSWERING = "I am Skynet's offline assistant: the configured models are not answering."
NO_TOKENS = Usage(input=0, output=0, cache_read=0, cache_write=0, total=0)
AGAIN = "(Offline assistant.)"
HELP = (
    "Without a model I can tell the time and the date, do arithmetic (12 * (3 + 4)), repeat what you say (echo hello) "
    "and tell you what you said last. Everything else needs a model."
)

DONE = frozenset({"write_file", "memory_learn", "memory_forget"})
"""Tools that change something: their results only say so."""

_asks_for_time = re.compile(
    r"(?:(?:what(?:'s| is)?|tell me|show me) )?(?:the )?(?:current )?(?:time|date|day|today(?:'s date)?)"
    r"(?: and (?:the )?(?:time|date))?(?: is it| is today| now| today| please)*"
)
_time_prefix = re.compile(r"\A\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d[^\]\n]{0,40}\] ")
_pieces = re.compile(r"\s*\S+(?:\s+\Z)?")
_PIECES_AT_ONCE = 64


async def stream(
    endpoint: Endpoint, model: ModelInfo, request: ModelRequest, *, configured: bool = False
) -> AsyncGenerator[Part, None]:
    """Answer the last user message, a word at a time, or call the tool that it asks for (DESIGN 7).

    ``configured``: there are models, they only did not answer.
    """
    messages, tools = request.messages, {tool.name for tool in request.options.tools}
    wish = wish_in(_said(messages)[-1], tools) if messages and isinstance(messages[-1], UserMessage) else None
    if wish is not None:
        yield ToolCallDelta(0, new_id(), wish.tool, msgspec.json.encode(wish.arguments).decode())
        yield Ended("toolUse", NO_TOKENS)
        return
    pieces = _pieces.findall(answer(messages, endpoint.clock(), configured=configured, tools=tools))
    for count, piece in enumerate(pieces, 1):
        yield TextDelta(piece)
        if count % _PIECES_AT_ONCE == 0:  # nothing here waits for a network, so a long answer would keep all others out
            await asyncio.sleep(0)
    yield Ended("stop", NO_TOKENS)


def answer(messages: Sequence[Message], now: datetime, *, configured: bool = False, tools: Collection[str] = ()) -> str:
    """The whole answer: who speaks, then what can be said, or what a tool gave.

    The introduction is short once it has been given.
    """
    said = _said(messages)
    introduced = any(
        isinstance(message, AssistantMessage) and message.api == "offline" and text_of(message) for message in messages
    )
    introduction = AGAIN if introduced else NOT_ANSWERING if configured else NOT_CONFIGURED
    last = messages[-1] if messages else None
    if isinstance(last, ToolResultMessage):
        done = "Done" if last.tool_name in DONE else "Here it is"
        outcome = "That did not work" if last.is_error else done
        return f"{introduction} {outcome}:\n\n{text_of(last)}"
    return introduction + (" " if introduced else "\n\n") + reply(said[-1], said[:-1], now, tools)


def _said(messages: Sequence[Message]) -> list[str]:
    """What the person said, oldest first, at least one text."""
    return [
        _time_prefix.sub("", text_of(message)).strip() for message in messages if isinstance(message, UserMessage)
    ] or [""]


def reply(text: str, before: Sequence[str], now: datetime, tools: Collection[str] = ()) -> str:
    """What can be said to ``text`` without a model; ``before`` is what the person said earlier, oldest first."""
    plain = text.strip().lower().rstrip("?!. ")
    if not plain or plain in ("help", "/help", "what can you do", "who are you"):
        return _help(tools)
    if plain in ("hi", "hello", "hey", "good morning", "good evening"):
        return f"Hello! {_help(tools)}"
    if re.search(r"\bwhat did i (?:just )?(?:say|write|ask)\b|\bmy (?:last|previous) message\b", plain):
        return f"You said: {before[-1]}" if before else "This is your first message in this conversation."
    if match := re.match(
        r"(?:echo|repeat(?: after me)?|say)\b:?\s+(?P<words>.+)", text.strip(), re.IGNORECASE | re.DOTALL
    ):
        return match["words"]
    if _asks_for_time.fullmatch(plain):
        return f"It is {now:%H:%M} on {now:%A}, {now.day} {now:%B} {now.year} ({now:%Z})."
    if (result := _calculate(plain)) is not None:
        return result
    if re.match(r"(?:please\s+)?(?:remember|run|remind me|execute|forget)\b", plain):
        verb = plain.removeprefix("please").split()[0]
        return (
            f"I cannot do that yet ({verb!r}): it needs a configured model in this version. Nothing was done or stored."
        )
    return f"I cannot answer that without a model. {_help(tools)}"


def _help(tools: Collection[str]) -> str:
    can = [what for tool, what in TOOL_HELP.items() if tool in tools]
    return f"{HELP} I can also {', '.join(can)}." if can else HELP


# Arithmetic: a small evaluator over the syntax tree, exact in fractions, bounded in size.

_LONGEST_EXPRESSION = 200
_LONGEST_QUESTION = 2000
"""What is longer is not looked at: the patterns below take time in the square of a text's length."""
_LARGEST_BITS = 4096

_spoken = (
    (re.compile(r"^(?:please\s+)?(?:what(?:'s| is)|how much is|calculate|compute|solve)\s+"), ""),
    (re.compile(r"\bplus\b"), "+"),
    (re.compile(r"\bminus\b"), "-"),
    (re.compile(r"\b(?:times|multiplied by)\b|[×·]|(?<=\d)\s*x\s*(?=\d)"), "*"),
    (re.compile(r"\bdivided by\b|[÷:]"), "/"),
    (re.compile(r"\^"), "**"),
    (re.compile(r"\s*=\s*$"), ""),
)
_binary: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _calculate(text: str) -> str | None:
    """The result of ``text`` as a sentence; None if it is no arithmetic."""
    if len(text) > _LONGEST_QUESTION:
        return None
    for pattern, replacement in _spoken:
        text = pattern.sub(replacement, text)
    text = text.strip()
    if not re.fullmatch(r"[\d\s.+\-*/%()]*[+\-*/%][\d\s.+\-*/%()]*", text) or not re.search(r"\d", text):
        return None
    if len(text) > _LONGEST_EXPRESSION:
        return "That is more arithmetic than I can do without a model."
    try:
        result = _decimal(_evaluate(ast.parse(text, mode="eval").body))
    except ZeroDivisionError:
        return "That divides by zero."
    except OverflowError:
        return "That number is too large for me."
    except (SyntaxError, ValueError):
        return None
    return f"{text} = {result}"


def _evaluate(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _evaluate(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _checked(_power(_evaluate(left), _evaluate(right)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _binary:
            return _checked(Fraction(_binary[type(op)](_evaluate(left), _evaluate(right))))
        case _:
            raise ValueError(f"no arithmetic: {ast.dump(node)}")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        if base < 0:
            raise ValueError("the root of a negative number")
        return Fraction(str(float(base) ** float(exponent)))
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size * abs(exponent.numerator) > _LARGEST_BITS:
        raise OverflowError
    return Fraction(base**exponent.numerator)


def _checked(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _LARGEST_BITS:
        raise OverflowError
    return value


def _decimal(value: Fraction) -> str:
    """Whole numbers in full, others to twelve digits."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.12g}"
