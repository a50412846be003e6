"""Reading answers: what the readers of all wire APIs have in common.

A reader is pure: bytes in, parts out. It is made of a decoder that cuts the bytes into events (``sse``, ``ndjson``,
``eventstream``) and an interpreter, the wire API's own, that turns one event into parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from skynet_agent.errors import ProviderError, StreamCut
from skynet_agent.events import Ended, Part, TextDelta, ThinkingDelta, ToolCallDelta
from skynet_agent.failures import error_facts, failure_of_facts
from skynet_agent.messages import Usage

MOST_TOKENS = 10_000_000_000
"""Of one call. No model reads or writes as many; sums and prices of such counts still fit 64 bits."""
MOST_CHARACTERS = 16 * 1024 * 1024
"""Of one answer, with its thinking and its tool calls: some thirty times what models can write."""
MOST_CALLS = 1000
"""Of tools, in one answer."""
SHORTEST_SECRET = 8

Event = TypeVar("Event")
Event_co = TypeVar("Event_co", covariant=True)
Event_contra = TypeVar("Event_contra", contravariant=True)
Chunk = TypeVar("Chunk")


class Decoder(Protocol[Event_co]):
    """Bytes to events, whatever the cuts. Raises ``ValueError`` for bytes that are no stream of its kind."""

    def feed(self, data: bytes) -> Sequence[Event_co]: ...
    def close(self) -> Sequence[Event_co]: ...


class Interpreter(Protocol[Event_contra]):
    """Events to parts. A ``ProviderError`` that it raises ends the reading."""

    @property
    def complete(self) -> bool:
        """The model has said that it is done; only usage and the like may be missing."""

    def read(self, event: Event_contra, parts: Parts) -> bool:
        """Add what ``event`` tells to ``parts``; True if it was the last one."""

    def end(self, parts: Parts) -> Ended:
        """How the complete answer ended; may raise, for an answer that ended as none should."""


class Parts:
    """The parts of one answer as they come: whole characters, numbered calls, and not without end."""

    def __init__(self) -> None:
        self._new: list[Part] = []
        self._halves: dict[str, str] = {}  # a high surrogate that waits for its low one, by kind of delta
        self.calls = 0
        self.characters = 0

    def text(self, text: str) -> None:
        if text and (text := self._whole("text", text)):
            self.characters += len(text)
            self._new.append(TextDelta(text))

    def thinking(self, text: str, *, signature: str = "", redacted: bool = False) -> None:
        """A piece of thinking; see ``ThinkingDelta``."""
        text = self._whole("thinking", text) if text else ""
        if text or signature:
            self.characters += len(text) + len(signature)
            self._new.append(ThinkingDelta(text, repair(signature), redacted))

    def begin_call(self, identity: str, name: str, arguments: str = "", *, signature: str = "") -> int:
        """The next tool call; returns its number. Without an id it gets one that is unique in this answer."""
        number = self.calls
        self.calls += 1
        identity = identity or f"call_{number}"
        self.characters += 100 + len(identity) + len(name) + len(arguments) + len(signature)
        whole = self._whole(f"arguments {number}", arguments) if arguments else ""
        self._new.append(ToolCallDelta(number, repair(identity), repair(name), whole, repair(signature)))
        return number

    def arguments(self, number: int, fragment: str) -> None:
        """More of a call's arguments."""
        self.characters += len(fragment) + 1
        if fragment := self._whole(f"arguments {number}", fragment) if fragment else "":
            self._new.append(ToolCallDelta(number, "", "", fragment))

    def take(self) -> list[Part]:
        """What came since the last call."""
        new, self._new = self._new, []
        return new

    def _whole(self, kind: str, text: str) -> str:
        """``text`` without halves of surrogate pairs: joined with the half before, or replaced."""
        if not self._halves and text.isascii():
            return text
        text = self._halves.pop(kind, "") + text
        if "\ud800" <= text[-1] <= "\udbff":
            self._halves[kind] = text[-1]
            text = text[:-1]
        return repair(text)


@dataclass(frozen=True, slots=True)
class Source:
    """Who answers, and what no failure may show, should the answer repeat it.

    A function is asked for the secrets when there is a failure: tokens are replaced while an answer is awaited.
    """

    provider: str
    secrets: tuple[bytes, ...] | Callable[[], tuple[bytes, ...]] = ()

    def redact(self, data: bytes) -> bytes:
        """``data`` without the secrets. One as short as those of local servers (``x``) is none: words contain it."""
        for secret in self.secrets() if callable(self.secrets) else self.secrets:
            if len(secret) >= SHORTEST_SECRET:
                data = data.replace(secret, b"***")
        return data

    def hide(self, failure: ProviderError) -> ProviderError:
        """``failure`` without the secrets in its words. In JSON they may have been written another way (``\\/``)."""
        words = str(failure).encode("utf-8", "surrogatepass")
        shown = self.redact(words)
        if shown == words:
            return failure
        hidden = failure.with_tried(failure.tried)
        hidden.args = (shown.decode("utf-8", "surrogatepass"),)
        return hidden

    def decode(self, decoder: msgspec.json.Decoder[Chunk], data: bytes) -> Chunk:
        """A chunk of JSON. Lone surrogates and broken UTF-8, which strict decoders refuse, are repaired.

        Raises:
            StreamCut: it is no such chunk.
        """
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            pass
        try:
            return msgspec.convert(json.loads(data.decode("utf-8", "replace")), decoder.type)
        except (ValueError, RecursionError) as exc:
            shown = self.redact(data)[:80].decode("utf-8", "replace")
            raise self.cut(f"a chunk that makes no sense: {shown!r}") from exc

    def cut(self, what: str) -> StreamCut:
        """The failure of an answer that broke off, in the gateway's own words."""
        return StreamCut(f"{self.provider}: {what}", provider=self.provider)

    def failure_in(self, data: bytes) -> ProviderError:
        """The failure that an event of the stream tells: a JSON error object, or one that holds it as ``error``."""
        message, code, kind = error_facts(self.redact(data))
        return failure_of_facts(self.provider, message, code, kind)


class AnswerReader(Generic[Event]):
    """Bytes of an answer in, parts out; no I/O, and no exception whatever the bytes are.

    Once ``ended``, either the last part was ``Ended`` or ``failure`` says what went wrong: an error in the stream,
    something that makes no sense, or no end. The rest is ignored.
    """

    def __init__(self, source: Source, decoder: Decoder[Event], interpreter: Interpreter[Event]) -> None:
        self._source = source
        self._decoder = decoder
        self._interpreter = interpreter
        self._parts = Parts()
        self.ended = False
        self.failure: ProviderError | None = None

    @property
    def complete(self) -> bool:
        """The model has said that it is done; only usage and the like may be missing."""
        return self._interpreter.complete

    def feed(self, data: bytes) -> list[Part]:
        """The parts that ``data`` completes."""
        try:
            events = self._decoder.feed(data)
        except ValueError as exc:
            return self._fail(self._source.cut(str(exc)))
        return self._read(events)

    def close(self) -> list[Part]:
        """The connection has ended; the parts that this completes."""
        try:
            parts = self._read(self._decoder.close())
        except ValueError as exc:
            return self._fail(self._source.cut(str(exc)))
        if self.ended:
            return parts
        if self.complete:
            return parts + self._end()
        return parts + self._fail(self._source.cut("the stream ended before the answer"))

    def _read(self, events: Sequence[Event]) -> list[Part]:
        if self.ended:
            return []
        parts, read = self._parts, self._interpreter.read
        for event in events:
            try:
                is_last = read(event, parts)
            except ProviderError as exc:
                return self._fail(exc)
            if is_last:
                return self._end()
        if parts.characters > MOST_CHARACTERS:
            return self._fail(self._source.cut(f"the answer is longer than {MOST_CHARACTERS} characters"))
        if parts.calls > MOST_CALLS:
            return self._fail(self._source.cut(f"the answer has more than {MOST_CALLS} tool calls"))
        return parts.take()

    def _end(self) -> list[Part]:
        try:
            ended = self._interpreter.end(self._parts)
        except ProviderError as exc:
            return self._fail(exc)
        self.ended = True
        return [*self._parts.take(), ended]

    def _fail(self, failure: ProviderError) -> list[Part]:
        if self.ended:
            return []
        self.ended, self.failure = True, self._source.hide(failure)
        return self._parts.take()


def repair(text: str) -> str:
    """``text`` with surrogate pairs joined and lone ones replaced, so that it can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def usage_of(*, prompt: Any, output: Any, cache_read: Any = 0, cache_write: Any = 0) -> Usage:
    """Usage from a provider's counts, where ``prompt`` includes what the cache had; None counts as 0."""
    whole, written = tokens(prompt), tokens(output)
    read = min(tokens(cache_read), whole)
    kept = min(tokens(cache_write), whole - read)
    return Usage(whole - read - kept, written, read, kept, whole + written)


def tokens(count: Any) -> int:
    """A count as far as it can be one: a number that no column holds must not cost the answer."""
    return min(max(int(count or 0), 0), MOST_TOKENS)
