"""The language of scripted answers, and what a wire format has to offer to speak it.

The last message of a user is the script. What stands before its last ``[Sat 2026-11-21 01:20 UTC] `` is ignored, and so
are a line ``[message_id: …]`` and a ``<session>`` block at its end. A message that is not wholly made of these words,
separated by blanks, is answered with ``echo: <message>``:

=====================  ==============================================================================================
``tokens=N``           ``w0 w1 … w(N-1)``, one chunk each
``say=TEXT``           TEXT, a chunk for each of its words; reaches to the next script word
``big=N``              one token of N bytes
``empty``              an answer that says nothing
``think=TEXT``         TEXT as thinking, a chunk a word, before everything else
``sign=TEXT``          the signature of that thinking, where the wire format has one; without blanks
``redact=TEXT``        thinking that is not shown, only this in its place, where the wire format has it; without blanks
``tool=NAME:JSON``     a tool call, arguments in fragments; several of them are parallel calls, interleaved. Once the
                       request has results after its last user message, ``say=`` is the answer, or
                       ``tool said: <last result>``
``next-round``         what follows is the answer to the results of the calls before it: ``tool=… next-round tool=…``
``every-round``        the same calls again whatever their results are
``first=MS``           wait before the first chunk (and before the status line)
``delay=MS``           wait between chunks
``fail=STATUS``        an error answer; ``fail=429:7`` adds ``Retry-After: 7``; ``fail=context`` is a context overflow;
                       ``say=`` gives it other words
``fail-once=STATUS``   the same for the first request with this very message, then what the other words say
``drop``               close the connection without an answer
``cut=N``              drop the connection after N chunks (0: after the response's head)
``hang``               never answer; after other words: stream those, then say nothing more, until the client goes
``error-in-stream``    an error object inside the stream, after what the other words say
``usage=none``         no usage, even when the request asks for it
``prompt=N``           prompt tokens in the usage, else 100; ``cached=N`` of them came from the cache, ``written=N`` of
                       them were written to it
``finish=REASON``      another reason for the end, in the words of the wire format
``split=N``            the stream in HTTP chunks of N bytes, wherever that cuts
=====================  ==============================================================================================

A chunk is an event that shows something (``Shown``); what opens and closes it on the wire goes with it and is not
counted. Output tokens are the number of text and thinking chunks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, Protocol

MODELS = ("mock-1", "mock-2")
"""What the lists of models name; any other is answered too."""
CREATED = 1_700_000_000

_time_prefix = re.compile(r".*\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d [^\]\n]{1,40}\] ", re.DOTALL)
_message_id = re.compile(r"\n\[message_id: [^\]\n]*\]\s*$")
_number = r"(?:tokens|big|first|delay|cut|prompt|cached|written|split)"
_name = rf"(?:{_number}|fail|fail-once|usage|finish|tool|say|think|sign|redact)="
_flag = r"(?:hang|drop|empty|error-in-stream|next-round|every-round)(?=\s|$)"
_word = re.compile(
    rf"(?P<name>say|think|tool)=(?P<text>.*?)(?=\s+(?:{_name}|{_flag})|\s*$)"
    rf"|(?P<key>{_number})=(?P<number>\d+)(?=\s|$)"
    r"|(?P<failure>fail|fail-once)=(?P<status>[45]\d\d|context)(?::(?P<retry_after>[^\n]*?))?(?=\s+(?:"
    rf"{_name}|{_flag})|\s*$)"
    r"|usage=(?P<usage>none)(?=\s|$)|finish=(?P<finish>\w+)(?=\s|$)"
    r"|sign=(?P<sign>\S+)|redact=(?P<redact>\S+)"
    rf"|(?P<flag>{_flag})",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP error. ``code`` is ``context_length_exceeded`` for an overflow, whatever a wire format calls it."""

    status: int
    code: str
    message: str
    retry_after: str | None = None


@dataclass(slots=True, eq=False)
class Script:
    """What one user message asks for. Compared by identity: the same message gives the same script.

    ``cached_tokens`` and ``written_tokens`` are parts of ``prompt_tokens``, None where the usage does not mention them.
    """

    tokens: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    signature: str = ""
    redacted: str = ""
    tools: list[tuple[str, str]] = field(default_factory=list)
    round: int = 0
    """How many rounds of tool calls came before, since the last user's message."""
    rounds: list[Script] = field(default_factory=list)
    """What answers the results of the calls, one a round."""
    every_round: bool = False
    first_ms: int = 0
    delay_ms: int = 0
    failure: Failure | None = None
    failure_once: bool = False
    drop: bool = False
    cut: int | None = None
    hang: bool = False
    empty: bool = False
    error_in_stream: bool = False
    usage: bool = True
    prompt_tokens: int = 100
    cached_tokens: int | None = None
    written_tokens: int | None = None
    finish: str = ""
    split: int = 0

    @property
    def shows_something(self) -> bool:
        return bool(self.tokens or self.thinking or self.tools or self.redacted)

    @property
    def output_tokens(self) -> int:
        return len(self.tokens) + len(self.thinking)

    def call_id(self, index: int) -> str:
        """The id of the call number ``index``: ``call_0``, in later rounds ``call_1_0``."""
        return f"call_{self.round}_{index}" if self.round else f"call_{index}"


def words(text: str) -> list[str]:
    """``text`` in pieces that begin with the blanks before each word, so that joining them gives ``text`` again."""
    return re.findall(r"\s*\S+(?:\s+$)?|\s+$", text)


def pieces(text: str, size: int = 6) -> list[str]:
    """``text`` in pieces of ``size`` characters, as the arguments of calls come."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def scripted_failure(status: str, retry_after: str | None = None) -> Failure:
    """The failure of ``fail=STATUS``."""
    if status == "context":
        text = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
        return Failure(400, "context_length_exceeded", text, None)
    codes = {"401": "invalid_api_key", "404": "model_not_found", "429": "rate_limit_exceeded"}
    return Failure(int(status), codes.get(status, "scripted"), f"scripted failure {status}", retry_after)


@lru_cache(maxsize=1024)
def parse_script(message: str) -> Script:
    """The script of a user message whose prefix is already removed."""
    rounds = [Script()]
    position, text = 0, message.strip()
    while position < len(text):
        match = _word.match(text, position)
        if match is None:
            return Script(tokens=words(f"echo: {message}"))
        if match["flag"] == "next-round":
            rounds.append(Script(round=len(rounds)))
        else:
            _apply(rounds[-1], match)
        position = match.end()
        while position < len(text) and text[position].isspace():
            position += 1
    if not text:
        return Script(tokens=words("echo: "))
    for script in rounds:
        _complete(script, message)
    rounds[0].rounds = rounds[1:]
    return rounds[0]


def _complete(script: Script, message: str) -> None:
    if script.failure is not None and script.tokens and not script.failure_once:
        script.failure = replace(script.failure, message="".join(script.tokens))
    is_short = script.hang or script.drop or script.empty or script.error_in_stream
    is_short |= script.failure is not None and not script.failure_once
    if script.cut is not None and not script.shows_something:
        script.tokens = [f"w{n}" if n == 0 else f" w{n}" for n in range(script.cut + 1)]
    elif not script.shows_something and not is_short:
        script.tokens = words(f"echo: {message}")


def _apply(script: Script, match: re.Match[str]) -> None:
    if match["failure"]:
        script.failure = scripted_failure(match["status"], match["retry_after"])
        script.failure_once = match["failure"] == "fail-once"
    elif match["usage"]:
        script.usage = False
    elif match["finish"]:
        script.finish = match["finish"]
    elif match["sign"]:
        script.signature = match["sign"]
    elif match["redact"]:
        script.redacted = match["redact"]
    elif match["flag"]:
        setattr(script, match["flag"].replace("-", "_"), True)
    elif match["name"]:
        match match["name"], match["text"]:
            case "say", text:
                script.tokens += words(text)
            case "think", text:
                script.thinking += words(text)
            case _, text:
                name, _, arguments = text.partition(":")
                script.tools.append((name, arguments))
    else:
        _apply_number(script, match["key"], int(match["number"]))


def _apply_number(script: Script, key: str, number: int) -> None:
    match key:
        case "tokens":
            script.tokens += [f"w{n}" if n == 0 else f" w{n}" for n in range(number)]
        case "big":
            script.tokens.append("x" * number)
        case "first":
            script.first_ms = number
        case "delay":
            script.delay_ms = number
        case "cut":
            script.cut = number
        case "prompt":
            script.prompt_tokens = number
        case "cached":
            script.cached_tokens = number
        case "written":
            script.written_tokens = number
        case _:
            script.split = number


# What a wire format has to offer


class Shown(bytes):
    """An event of a stream that shows something: a piece of text, of thinking or of a call's arguments."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came: ``target`` is the path with its query, ``raw`` the body, ``body`` what it is as JSON.

    Header names are in lower case. ``body`` is None if there was none or no JSON.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    target: str = ""
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation, its texts joined; the result of a tool is a turn of its own."""

    role: Literal["user", "assistant", "tool"]
    text: str


@dataclass(slots=True)
class Asked:
    """What a request asks for. ``body`` is the request's own, for what only its wire format knows."""

    model: str
    stream: bool
    messages: list[Turn]
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is no model's: a list, a token. ``value`` is sent as JSON, bytes as they are."""

    value: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):  # noqa: N818 - reads as what happened
    """The real service would refuse this request."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(status, code, message)


class Dialect(Protocol):
    """A wire format. Each server has instances of its own, so that a test may set what clients have to prove."""

    @property
    def content_type(self) -> str:
        """Of a stream."""

    @property
    def cache(self) -> Literal["prefix", "marks", "none"]:
        """How prompts are cached: whatever begins as an earlier one did (OpenAI), only up to marked blocks, or not."""

    def accepts(self, seen: Seen) -> bool:
        """Whether the request is in this wire format, by method, path and headers. The first one listed gets it."""

    def ask(self, seen: Seen) -> Asked | Reply:
        """What is asked; a ``Reply`` where no model is.

        Raises:
            Refused: the body, the key or the signature is none that the real service would take.
        """

    def stream(self, script: Script, asked: Asked) -> list[bytes]:
        """The events, what shows something as ``Shown``; with ``script.error_in_stream`` an error is the last one."""

    def whole(self, script: Script, asked: Asked) -> Any:
        """The answer that is not streamed, JSON."""

    def failure(self, failure: Failure) -> Any:
        """The JSON body of an HTTP error; a ``Reply`` if it has headers of its own."""

    def models(self) -> Any | None:
        """The list of models, the answer to every GET that is accepted; None if there is none."""

    def prompt_blocks(self, body: Mapping[str, Any]) -> list[tuple[str, bool]]:
        """The prompt as it is cached: tools, system, messages, in order, each with whether a mark ends it."""


def without_session(text: str) -> str:
    """A user message without what the gateway adds to it of the session."""
    return text[: text.rfind("<session>")].rstrip() if text.endswith("</session>") else text


def script_of(turns: Sequence[Turn]) -> tuple[str, Script]:
    """The last user message without its prefix, and its script, which answers tools that have run since then."""
    text, result, rounds = "", None, 0
    after: str = ""
    for turn in reversed(turns):
        if turn.role == "tool":
            result = turn.text if result is None else result
            rounds += after != "tool"
        if turn.role == "user":
            text = turn.text
            break
        after = turn.role
    if (prefix := _time_prefix.match(text)) is not None:  # sub() would try from every character of a long text
        text = text[prefix.end() :]
    text = without_session(text)
    text = _message_id.sub("", text)
    script = parse_script(text)
    if not script.tools or result is None:
        return text, script
    if script.every_round:
        return text, replace(script, round=rounds)
    if script.rounds:
        return text, script.rounds[min(rounds, len(script.rounds)) - 1]
    return text, Script(tokens=script.tokens or words(f"tool said: {result}"), prompt_tokens=script.prompt_tokens)
