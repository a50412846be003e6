"""A scripted OpenAI-compatible model server: real HTTP, no model, always the same answer to the same request.

Run it with ``python -m tests.support.model_server --port 0`` (prints ``listening on http://127.0.0.1:PORT/v1``;
``--port`` may be repeated) or inside a test with ``async with ModelServer() as server:``.

``POST /v1/chat/completions`` (streamed or not) and ``GET /v1/models`` (mock-1, mock-2; any model name is answered).
The last user message is the script. What stands before its last ``[Sat 2026-11-21 01:20 UTC] `` is ignored, and so is
a line ``[message_id: …]`` at its end. A message that is not wholly made of these words, separated by blanks, is
answered with ``echo: <message>``:

=====================  ==============================================================================================
``tokens=N``           ``w0 w1 … w(N-1)``, one chunk each
``say=TEXT``           TEXT, a chunk for each of its words; reaches to the next script word
``big=N``              one token of N bytes
``think=TEXT``         TEXT as ``reasoning_content``, a chunk a word, before everything else
``tool=NAME:JSON``     a tool call, arguments in fragments; several of them are parallel calls, interleaved. Once the
                       request has results after its last user message, ``say=`` is the answer, or
                       ``tool said: <last result>``
``first=MS``           wait before the first chunk (and before the status line)
``delay=MS``           wait between chunks
``fail=STATUS``        an error answer; ``fail=429:7`` adds ``Retry-After: 7``; ``fail=context`` is a context overflow;
                       ``say=`` gives it other words
``fail-once=STATUS``   the same for the first request with this very message, then what the other words say
``cut=N``              drop the connection after N chunks (0: after the response's head)
``hang``               never answer; after other words: stream those, then say nothing more, until the client goes
``error-in-stream``    an error object inside the stream, after what the other words say
``usage=none``         no usage, even when the request asks for it
``prompt=N``           prompt tokens in the usage, else 100; ``cached=N`` of them came from the cache
``finish=REASON``      another ``finish_reason``
``split=N``            the stream in HTTP chunks of N bytes, wherever that cuts
=====================  ==============================================================================================

A test may set ``server.script`` instead: then that is the script, whatever the messages say.

Completion tokens are the number of text and thinking chunks. A stream carries usage when the request asks for it with
``stream_options.include_usage``. Chunks are encoded once for each script, and each is an HTTP chunk and a write of its
own.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

import httptools
import orjson

MODELS = ("mock-1", "mock-2")
CREATED = 1_700_000_000
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
STREAM_END = b"0\r\n\r\n"

_time_prefix = re.compile(r".*\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d [^\]\n]{1,40}\] ", re.DOTALL)
_message_id = re.compile(r"\n\[message_id: [^\]\n]*\]\s*$")
_name = r"(?:tokens|big|first|delay|fail|fail-once|cut|usage|prompt|cached|finish|split|tool|say|think)="
_flag = r"(?:hang|error-in-stream)(?=\s|$)"
_word = re.compile(
    rf"(?P<name>say|think|tool)=(?P<text>.*?)(?=\s+(?:{_name}|{_flag})|\s*$)"
    r"|(?P<key>tokens|big|first|delay|cut|prompt|cached|split)=(?P<number>\d+)(?=\s|$)"
    r"|(?P<failure>fail|fail-once)=(?P<status>[45]\d\d|context)(?::(?P<retry_after>[^\n]*?))?(?=\s+(?:"
    rf"{_name}|{_flag})|\s*$)"
    r"|usage=(?P<usage>none)(?=\s|$)|finish=(?P<finish>\w+)(?=\s|$)"
    rf"|(?P<flag>{_flag})",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Failure:
    status: int
    code: str
    message: str
    retry_after: str | None


@dataclass(slots=True, eq=False)
class Script:
    """What one user message asks for. Compared by identity: the same message gives the same script."""

    tokens: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    tools: list[tuple[str, str]] = field(default_factory=list)
    first_ms: int = 0
    delay_ms: int = 0
    failure: Failure | None = None
    failure_once: bool = False
    cut: int | None = None
    hang: bool = False
    error_in_stream: bool = False
    usage: bool = True
    prompt_tokens: int = 100
    cached_tokens: int | None = None
    finish: str = ""
    split: int = 0

    @property
    def shows_something(self) -> bool:
        return bool(self.tokens or self.thinking or self.tools)


def words(text: str) -> list[str]:
    """``text`` in pieces that begin with the blanks before each word, so that joining them gives ``text`` again."""
    return re.findall(r"\s*\S+(?:\s+$)?|\s+$", text)


def scripted_failure(status: str, retry_after: str | None) -> Failure:
    if status == "context":
        text = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
        return Failure(400, "context_length_exceeded", text, None)
    codes = {"401": "invalid_api_key", "404": "model_not_found", "429": "rate_limit_exceeded"}
    return Failure(int(status), codes.get(status, "scripted"), f"scripted failure {status}", retry_after)


@lru_cache(maxsize=1024)
def parse_script(message: str) -> Script:
    """The script of a user message whose prefix is already removed."""
    script = Script()
    said: list[str] = []
    position, text = 0, message.strip()
    while position < len(text):
        match = _word.match(text, position)
        if match is None:
            return Script(tokens=words(f"echo: {message}"))
        _apply(script, said, match)
        position = match.end()
        while position < len(text) and text[position].isspace():
            position += 1
    if not text:
        return Script(tokens=words("echo: "))
    if script.failure is not None and script.tokens and not script.failure_once:
        script.failure = replace(script.failure, message="".join(script.tokens))
    fails_or_hangs = (script.failure is not None and not script.failure_once) or script.hang or script.error_in_stream
    if script.cut is not None and not script.shows_something:
        script.tokens = [f"w{n}" if n == 0 else f" w{n}" for n in range(script.cut + 1)]
    elif not script.shows_something and not fails_or_hangs:
        script.tokens = words(f"echo: {message}")
    return script


def _apply(script: Script, said: list[str], match: re.Match[str]) -> None:
    if match["failure"]:
        script.failure = scripted_failure(match["status"], match["retry_after"])
        script.failure_once = match["failure"] == "fail-once"
    elif match["usage"]:
        script.usage = False
    elif match["finish"]:
        script.finish = match["finish"]
    elif match["flag"]:
        script.hang |= match["flag"] == "hang"
        script.error_in_stream |= match["flag"] == "error-in-stream"
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
        case _:
            script.split = number


def script_of(messages: Sequence[Mapping[str, Any]]) -> tuple[str, Script]:
    """The last user message without its prefix, and its script, which answers tools that have run since then."""
    text, result = "", None
    for message in reversed(messages):
        if message.get("role") == "tool" and result is None:
            result = _text(message.get("content"))
        if message.get("role") == "user":
            text = _text(message.get("content"))
            break
    if (prefix := _time_prefix.match(text)) is not None:  # sub() would try from every character of a long text
        text = text[prefix.end() :]
    text = _message_id.sub("", text)
    script = parse_script(text)
    if script.tools and result is not None:
        script = Script(tokens=script.tokens or words(f"tool said: {result}"), prompt_tokens=script.prompt_tokens)
    return text, script


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [] if part.get("type") == "text")


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def tool_deltas(tools: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Openings of all calls, then their argument fragments in turn."""
    for index, (name, _) in enumerate(tools):
        function = {"name": name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]}
    fragments = [_pieces(arguments, 6) for _, arguments in tools]
    for turn in range(max((len(each) for each in fragments), default=0)):
        for index, each in enumerate(fragments):
            if turn < len(each):
                yield {"tool_calls": [{"index": index, "function": {"arguments": each[turn]}}]}


def usage_of(script: Script) -> dict[str, Any]:
    completion = len(script.tokens) + len(script.thinking)
    usage: dict[str, Any] = {
        "prompt_tokens": script.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": script.prompt_tokens + completion,
    }
    if script.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": script.cached_tokens}
    return usage


def finish_reason(script: Script) -> str:
    return script.finish or ("tool_calls" if script.tools else "stop")


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@lru_cache(maxsize=256)
def encode_stream(script: Script, model: str, with_usage: bool) -> list[bytes]:
    """The HTTP chunks of a streamed answer, the last one with its end; none of the failures."""
    head = {"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": CREATED, "model": model}

    def event(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
        return b"data: " + orjson.dumps({**head, "choices": choices}) + b"\n\n"

    deltas: list[dict[str, Any]] = [{"reasoning_content": text} for text in script.thinking]
    deltas += [{"content": text} for text in script.tokens]
    deltas += tool_deltas(script.tools)
    if deltas:
        deltas[0] = {"role": "assistant", **deltas[0]}
    events = [event(delta) for delta in deltas]
    tail = [event({}, finish_reason(script))]
    if with_usage and script.usage:
        tail.append(b"data: " + orjson.dumps({**head, "choices": [], "usage": usage_of(script)}) + b"\n\n")
    tail.append(b"data: [DONE]\n\n")
    if script.error_in_stream:
        error = {"error": {"message": "scripted failure in the stream", "type": "server_error", "code": "scripted"}}
        tail = [b"data: " + orjson.dumps(error) + b"\n\n"]
    if script.split:
        whole = b"".join(events + tail)
        events, tail = [whole[at : at + script.split] for at in range(0, len(whole), script.split)], []
    return [*map(_http_chunk, events), b"".join(map(_http_chunk, tail)) + STREAM_END]


def encode_answer(script: Script, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(script.tokens) or None}
    if script.thinking:
        message["reasoning_content"] = "".join(script.thinking)
    if script.tools:
        message["tool_calls"] = [
            {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for index, (name, arguments) in enumerate(script.tools)
        ]
    choice = {"index": 0, "message": message, "finish_reason": finish_reason(script)}
    answer = {"id": "chatcmpl-mock", "object": "chat.completion", "created": CREATED, "model": model}
    return {**answer, "choices": [choice], **({"usage": usage_of(script)} if script.usage else {})}


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came; header names in lower case, ``body`` parsed (None if there was none)."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class ModelServer:
    """The server, listening while it is entered.

    ``script``, unless empty, answers every chat request. ``requests`` keeps the last ``keep`` requests; ``served`` and
    ``connected`` count all requests and connections. ``disconnects`` counts clients that went away before their answer
    was complete; connections the server itself dropped (``cut``) are not among them.
    """

    def __init__(self, port: int = 0, *, keep: int = 1000) -> None:
        self.port = port
        self.script = ""
        self.requests: deque[Seen] = deque(maxlen=keep)
        self.served = 0
        self.connected = 0
        self.disconnects = 0
        self.connections: set[_Connection] = set()
        self.failed_once: set[str] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The base URL for a client, with ``/v1``."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def bodies(self) -> list[Any]:
        """The chat requests among ``requests``, their bodies only."""
        return [seen.body for seen in self.requests if seen.method == "POST"]

    async def __aenter__(self) -> ModelServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self.connections):
            connection.drop()
        await self._server.wait_closed()


class _Connection(asyncio.Protocol):
    """One keep-alive connection; requests that are sent ahead wait for their turn."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Seen] = deque()
        self._answering = False
        self._dropped = False
        self._timer: asyncio.Handle | None = None
        self._chunks: Iterator[bytes] = iter(())
        self._delay_s = 0.0
        self._after: str = ""
        self._may_write = True
        self._stalled = False
        self._begin_message()

    def _begin_message(self) -> None:
        self._url, self._body, self._headers = b"", bytearray(), dict[str, str]()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._server.connections.add(self)
        self._server.connected += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._answering and not self._dropped:
            self._server.disconnects += 1

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.drop()

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        if self._stalled:
            self._stalled = False
            self._step()

    def drop(self) -> None:
        """Close without a farewell."""
        self._dropped = True
        self._transport.abort()

    # httptools

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        try:
            body = orjson.loads(self._body) if self._body else None
        except orjson.JSONDecodeError:
            body = None
        method, path = self._parser.get_method().decode(), self._url.decode("latin-1").partition("?")[0]
        seen = Seen(method, path, self._headers, body)
        self._begin_message()
        self._server.requests.append(seen)
        self._waiting.append(seen)
        self._next()

    # answers

    def _next(self) -> None:
        if self._waiting and not self._answering:
            self._answering = True
            self._answer(self._waiting.popleft())

    def _answer(self, seen: Seen) -> None:
        self._server.served += 1
        if seen.path.endswith("/models") and seen.method == "GET":
            models = [{"id": name, "object": "model", "created": CREATED, "owned_by": "mock"} for name in MODELS]
            return self._send_json(200, {"object": "list", "data": models})
        if not seen.path.endswith("/chat/completions") or seen.method != "POST":
            return self._send_error(Failure(404, "not_found", f"no such path: {seen.method} {seen.path}", None))
        if not isinstance(seen.body, dict) or not isinstance(seen.body.get("messages"), list):
            return self._send_error(Failure(400, "invalid_request", "the body has to be JSON with messages", None))
        messages = seen.body["messages"]
        if self._server.script:
            messages = [{"role": "user", "content": self._server.script}]
        text, script = script_of(messages)
        if script.first_ms:
            self._timer = self._loop.call_later(script.first_ms / 1000, self._perform, text, script, seen.body)
        else:
            self._perform(text, script, seen.body)
        return None

    def _perform(self, text: str, script: Script, body: Mapping[str, Any]) -> None:
        if script.failure is not None and not (script.failure_once and text in self._server.failed_once):
            self._server.failed_once.add(text)
            return self._send_error(script.failure)
        if script.hang and not script.shows_something:
            return None
        if not body.get("stream"):
            return self._perform_whole(script, body)
        with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        chunks = encode_stream(script, body.get("model", MODELS[0]), with_usage)
        self._after = "end"
        if script.cut is not None:
            chunks, self._after = chunks[: script.cut], "cut"
        elif script.hang:
            chunks, self._after = chunks[:-1], "hang"
        self._chunks, self._delay_s = iter(chunks), script.delay_ms / 1000
        first = next(self._chunks, b"")
        self._transport.write(STREAM_HEAD + first)
        self._later()
        return None

    def _later(self) -> None:
        if self._delay_s:
            self._timer = self._loop.call_later(self._delay_s, self._step)
        else:
            self._timer = self._loop.call_soon(self._step)

    def _step(self) -> None:
        if not self._may_write:
            self._stalled = True
            return
        chunk = next(self._chunks, None)
        if chunk is not None:
            self._transport.write(chunk)
            self._later()
        elif self._after == "cut":
            # close() sends what is buffered; the missing end of the chunked body tells the client that it was cut
            self._dropped = True
            self._transport.close()
        elif self._after == "end":
            self._done()

    def _perform_whole(self, script: Script, body: Mapping[str, Any]) -> None:
        if script.cut is not None:
            return self.drop()
        if script.hang:
            return None
        if script.error_in_stream:
            return self._send_error(scripted_failure("500", None))
        answer = encode_answer(script, body.get("model", MODELS[0]))
        if not script.delay_ms:
            return self._send_json(200, answer)
        delay_s = script.delay_ms * len(script.tokens) / 1000
        self._timer = self._loop.call_later(delay_s, self._send_json, 200, answer)
        return None

    def _send_error(self, failure: Failure) -> None:
        error = {"message": failure.message, "type": "scripted", "param": None, "code": failure.code}
        extra = "" if failure.retry_after is None else f"retry-after: {failure.retry_after}\r\n"
        self._send_json(failure.status, {"error": error}, extra)

    def _send_json(self, status: int, value: object, extra: str = "") -> None:
        body = orjson.dumps(value)
        head = f"HTTP/1.1 {status} {REASONS.get(status, 'Scripted')}\r\ncontent-type: application/json\r\n"
        self._transport.write(f"{head}{extra}content-length: {len(body)}\r\n\r\n".encode() + body)
        self._done()

    def _done(self) -> None:
        self._answering = False
        self._timer = None
        if self._parser.should_keep_alive():
            self._next()
        else:
            self._transport.close()


async def serve(ports: Sequence[int]) -> None:
    """Serve on every one of ``ports`` until SIGTERM or SIGINT; each is a server of its own."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    servers = [ModelServer(port, keep=16) for port in ports]
    for server in servers:
        await server.__aenter__()
        print(f"listening on {server.url}", flush=True)  # noqa: T201
    await stop.wait()
    for server in servers:
        await server.__aexit__()


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible model server.")
    parser.add_argument("--port", type=int, action="append", help="may be repeated; 0 picks a free one")
    ports = parser.parse_args().port or [0]
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(ports))
    else:
        uvloop.run(serve(ports))


if __name__ == "__main__":
    main()
