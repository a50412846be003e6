"""A scripted model server: real HTTP, no model, always the same answer to the same request.

Run it with ``python -m tests.support.model_server --port 0`` (prints ``listening on http://127.0.0.1:PORT/v1``;
``--port`` may be repeated) or inside a test with ``async with ModelServer() as server:``.

It speaks every wire format of ``tests.support.dialects``, told apart by path, and refuses what the real services
refuse. What it says is told to it by the messages themselves: see ``tests.support.script``. A test may set
``server.script`` instead: then that is the script, whatever the messages say. Each event is an HTTP chunk, and each
that shows something a write of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar, cast

import httptools
import orjson

from tests.support.dialects import DIALECTS
from tests.support.script import (
    Asked,
    Dialect,
    Failure,
    Refused,
    Reply,
    Script,
    Seen,
    Shown,
    parse_script,
    script_of,
    scripted_failure,
)

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}
STREAM_END = b"0\r\n\r\n"
CHARACTERS_A_TOKEN = 4
LEAST_CACHED_TOKENS = 1024
"""A prompt that is shorter is not cached, by OpenAI and by Anthropic's large models."""
CACHE_STEP_TOKENS = 128
"""OpenAI's caches count in steps."""
CACHE_LOOK_BACK = 20
"""So many blocks before a mark does Anthropic look for what it knows."""

D = TypeVar("D")


class PromptCache:
    """What a provider that caches prompts bills: it knows those that it has seen.

    Tokens are characters by four. With ``prefix``, all that begins as an earlier prompt did is read, in steps of 128
    tokens, and nothing is said about writing. With ``marks``, a prompt is written up to its marked blocks, and read up
    to the last of these, or of the 20 blocks before one, that an earlier request has written.
    """

    def __init__(self) -> None:
        self._prompts: dict[Any, deque[str]] = defaultdict(lambda: deque(maxlen=64))
        self._marked: dict[Any, set[str]] = defaultdict(set)

    def bill(self, key: object, blocks: Sequence[tuple[str, bool]], *, marks: bool) -> tuple[int, int, int | None]:
        """Tokens of the prompt, those that were read, and those that were written. ``key`` has a cache of its own."""
        return self._bill_marks(key, blocks) if marks else self._bill_prefix(key, blocks)

    def _bill_prefix(self, key: object, blocks: Sequence[tuple[str, bool]]) -> tuple[int, int, int | None]:
        prompt = "".join(text for text, _ in blocks)
        longest = max((_shared(prompt, seen) for seen in self._prompts[key]), default=0)
        self._prompts[key].append(prompt)
        read = longest // CHARACTERS_A_TOKEN // CACHE_STEP_TOKENS * CACHE_STEP_TOKENS
        return len(prompt) // CHARACTERS_A_TOKEN, read if read >= LEAST_CACHED_TOKENS else 0, None

    def _bill_marks(self, key: object, blocks: Sequence[tuple[str, bool]]) -> tuple[int, int, int | None]:
        known = self._marked[key]
        prefixes: list[str] = []
        for text, _ in blocks:
            prefixes.append((prefixes[-1] if prefixes else "") + text)
        tokens = [len(prefix) // CHARACTERS_A_TOKEN for prefix in prefixes]
        ends = [n for n, (_, is_marked) in enumerate(blocks) if is_marked and tokens[n] >= LEAST_CACHED_TOKENS]
        found = [n for end in ends for n in range(max(0, end - CACHE_LOOK_BACK), end + 1) if prefixes[n] in known]
        read = tokens[max(found)] if found else 0
        known.update(prefixes[end] for end in ends)
        return tokens[-1] if tokens else 0, read, max(0, tokens[ends[-1]] - read) if ends else 0


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[:middle] == other[:middle]:
            least = middle
        else:
            most = middle - 1
    return least


class Chaos:
    """Failures by chance: the same seed gives the same ones."""

    def __init__(self, rate: float, kinds: Sequence[str], seed: int) -> None:
        self._rate = rate
        self._kinds = tuple(kinds)
        self._random = random.Random(seed)
        self.failed = 0

    def strike(self, script: Script) -> Script:
        """``script``, or one of the kinds in its place. A ``cut`` and waits are put upon it."""
        if self._random.random() >= self._rate:
            return script
        self.failed += 1
        fault = parse_script(self._random.choice(self._kinds))
        if fault.failure or fault.hang or fault.drop or fault.error_in_stream:
            return fault
        return replace(script, cut=fault.cut, first_ms=fault.first_ms, delay_ms=fault.delay_ms)


class ModelServer:
    """The server, listening while it is entered.

    ``script``, unless empty, answers every model call. ``cache``: usage tells what a caching provider would bill, not
    what scripts say. ``requests`` keeps the last ``keep`` requests; ``served`` and ``connected`` count all requests and
    connections, ``asked`` the model calls among them. ``disconnects`` counts clients that went away before their answer
    was complete; connections the server itself dropped (``cut``) are not among them.
    """

    def __init__(self, port: int = 0, *, keep: int = 1000) -> None:
        self.port = port
        self.script = ""
        self.cache = False
        self.dialects: tuple[Dialect, ...] = tuple(make() for make in DIALECTS)
        self.requests: deque[Seen] = deque(maxlen=keep)
        self.served = 0
        self.asked = 0
        self.connected = 0
        self.disconnects = 0
        self.connections: set[_Connection] = set()
        self.failed_once: set[str] = set()
        self.prompts = PromptCache()
        self.faults: Chaos | None = None
        self._server: asyncio.Server | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The base URL for a client of OpenAI's APIs, with ``/v1``."""
        return f"{self.origin}/v1"

    @property
    def bodies(self) -> list[Any]:
        """The POST requests among ``requests``, their bodies only."""
        return [seen.body for seen in self.requests if seen.method == "POST"]

    def dialect(self, kind: type[D]) -> D:
        """This server's own instance of a wire format."""
        return next(dialect for dialect in self.dialects if isinstance(dialect, kind))

    def chaos(self, rate: float, kinds: Sequence[str], seed: int = 0) -> Chaos:
        """Let ``rate`` of the model calls fail (0 to 1), in one of the ``kinds``: script words, ``fail=503`` say."""
        self.faults = Chaos(rate, kinds, seed)
        return self.faults

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

    def script_for(self, dialect: Dialect, asked: Asked) -> tuple[str, Script]:
        """The message that is answered, and what is done about it."""
        text, script = script_of(asked.messages)
        if self.script:
            text, script = self.script, parse_script(self.script)
        if self.faults is not None:
            script = self.faults.strike(script)
        if self.cache and dialect.cache != "none":
            key = (type(dialect), asked.model, asked.body.get("prompt_cache_key"))
            blocks = dialect.prompt_blocks(asked.body)
            prompt, read, written = self.prompts.bill(key, blocks, marks=dialect.cache == "marks")
            script = replace(script, prompt_tokens=prompt, cached_tokens=read, written_tokens=written)
        return text, script


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def writes_of(events: Sequence[bytes], split: int) -> list[bytes]:
    """The writes of a stream: one for each event that is shown, with what opens it; the last one is the end."""
    if split:
        whole = b"".join(events)
        return [*(_http_chunk(whole[at : at + split]) for at in range(0, len(whole), split)), STREAM_END]
    writes, opening = [], b""
    for event in events:
        opening += _http_chunk(event)
        if isinstance(event, Shown):
            writes.append(opening)
            opening = b""
    return [*writes, opening + STREAM_END]


@lru_cache(maxsize=64)
def _stream_head(content_type: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n"
    return head.encode() + b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"


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
        self._writes: Iterator[bytes] = iter(())
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
        raw = bytes(self._body)
        try:
            body = orjson.loads(raw) if raw else None
        except orjson.JSONDecodeError:
            body = None
        method, target = self._parser.get_method().decode(), self._url.decode("latin-1")
        seen = Seen(method, target.partition("?")[0], self._headers, body, target, raw)
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
        dialect = next((each for each in self._server.dialects if each.accepts(seen)), None)
        if dialect is None:
            self._send(Reply({"error": {"message": f"no such path: {seen.method} {seen.path}"}}, 404))
            return
        if seen.method == "GET" and (models := dialect.models()) is not None:
            self._send(Reply(models))
            return
        try:
            asked = dialect.ask(seen)
        except Refused as exc:
            self._send_failure(dialect, exc.failure)
            return
        if isinstance(asked, Reply):
            self._send(asked)
            return
        self._server.asked += 1
        text, script = self._server.script_for(dialect, asked)
        if script.first_ms:
            self._timer = self._loop.call_later(script.first_ms / 1000, self._perform, dialect, text, script, asked)
        else:
            self._perform(dialect, text, script, asked)

    def _perform(self, dialect: Dialect, text: str, script: Script, asked: Asked) -> None:
        if script.failure is not None and not (script.failure_once and text in self._server.failed_once):
            self._server.failed_once.add(text)
            self._send_failure(dialect, script.failure)
        elif script.drop:
            self.drop()
        elif script.hang and not script.shows_something:
            return
        elif asked.stream:
            self._perform_stream(dialect, script, asked)
        else:
            self._perform_whole(dialect, script, asked)

    def _perform_stream(self, dialect: Dialect, script: Script, asked: Asked) -> None:
        writes = writes_of(dialect.stream(script, asked), script.split)
        self._after = "end"
        if script.cut is not None:
            writes, self._after = writes[: script.cut], "cut"
        elif script.hang:
            writes, self._after = writes[:-1], "hang"
        self._writes, self._delay_s = iter(writes), script.delay_ms / 1000
        self._transport.write(_stream_head(dialect.content_type) + next(self._writes, b""))
        self._later()

    def _later(self) -> None:
        if self._delay_s:
            self._timer = self._loop.call_later(self._delay_s, self._step)
        else:
            self._timer = self._loop.call_soon(self._step)

    def _step(self) -> None:
        if not self._may_write:
            self._stalled = True
            return
        data = next(self._writes, None)
        if data is not None:
            self._transport.write(data)
            self._later()
        elif self._after == "cut":
            # close() sends what is buffered; the missing end of the chunked body tells the client that it was cut
            self._dropped = True
            self._transport.close()
        elif self._after == "end":
            self._done()

    def _perform_whole(self, dialect: Dialect, script: Script, asked: Asked) -> None:
        if script.cut is not None:
            self.drop()
        elif script.error_in_stream:
            self._send_failure(dialect, scripted_failure("500"))
        elif not script.hang:
            reply, delay_s = Reply(dialect.whole(script, asked)), script.delay_ms * len(script.tokens) / 1000
            if delay_s:
                self._timer = self._loop.call_later(delay_s, self._send, reply)
            else:
                self._send(reply)

    def _send_failure(self, dialect: Dialect, failure: Failure) -> None:
        said = dialect.failure(failure)
        reply = said if isinstance(said, Reply) else Reply(said)
        headers = {} if failure.retry_after is None else {"retry-after": failure.retry_after}
        self._send(replace(reply, status=failure.status, headers={**reply.headers, **headers}))

    def _send(self, reply: Reply) -> None:
        body = reply.value if isinstance(reply.value, bytes) else orjson.dumps(reply.value)
        headers = {"content-type": "application/json", **reply.headers, "content-length": str(len(body))}
        lines = [f"HTTP/1.1 {reply.status} {REASONS.get(reply.status, 'Scripted')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._transport.write("\r\n".join([*lines, "", ""]).encode() + body)
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
    parser = argparse.ArgumentParser(description="A scripted model server.")
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
