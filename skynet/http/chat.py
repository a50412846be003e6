"""``POST /v1/chat/completions`` (OPENCLAW-V3 10.2): a run like any other, rendered as OpenAI's API does."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from starlette.types import Receive, Scope, Send

from skynet.gateway.keys import render_key
from skynet.gateway.peer import PeerInfo
from skynet.gateway.run import Inbound, Repeat, Run, RunEnded
from skynet.gateway.run_answer import RunResult
from skynet.gateway.runs import Runs
from skynet.http.access import Access, peer_of
from skynet.http.body import ClientGone, read_body
from skynet.http.chat_answer import (
    Answer,
    ChunkEncoder,
    StoredFailure,
    answer_of,
    encode_completion,
    stored_answer,
)
from skynet.http.chat_request import DEFAULT_MAX_TOKENS, ChatTurn, parse_chat_request
from skynet.http.errors import DO_NOT_RETRY, HttpError, http_error, invalid, stored_error
from skynet.http.relay import Relay, source_header
from skynet.http.responses import request_id, send_error, send_json
from skynet.http.target import origin_of, session_of, target_of
from skynet_agent.events import TurnEvent
from skynet_agent.router import Router
from skynet_memory.ids import RunId, new_id, now_ms
from skynet_protocol.scopes import Scope as OperatorScope
from skynet_users.caller import Caller
from skynet_users.permissions import Permission

log = logging.getLogger(__name__)

DRAIN_TIMEOUT_S = 120.0
"""How long a client may take to read the rest of an answer that is complete."""
OVERFLOW_TIMEOUT_S = 10.0
"""The same for one that was stopped because its reader was too slow."""
MAX_IDEMPOTENCY_KEY = 255


class ChatCompletions:
    """The endpoint, as an ASGI application."""

    def __init__(
        self,
        *,
        runs: Runs,
        router: Router,
        access: Access,
        body_bytes: int,
        outbound_bytes: int,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._runs = runs
        self._router = router
        self._access = access
        self._body_bytes = body_bytes
        self._outbound_bytes = outbound_bytes
        self._max_tokens = max_tokens
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        correlation_id = ""
        try:
            peer = peer_of(scope)
            caller = await self._access.admit(scope, peer, OperatorScope.WRITE, "/v1/chat/completions")
            correlation_id = caller.correlation_id
            body = await read_body(receive, peer, limit_bytes=self._body_bytes)
            # A body takes as long as its sender likes: who they were when it began is not asked what they may do now.
            caller = replace(
                await self._access.admit(scope, peer, OperatorScope.WRITE, "/v1/chat/completions"),
                correlation_id=correlation_id,
            )
            turn = parse_chat_request(body, now_ms=self._clock(), max_tokens=self._max_tokens)
            run_id = _run_id(peer)
            outcome = await self._submit(caller, peer, turn, run_id)
        except ClientGone:
            return
        except Exception as exc:
            correlation_id = correlation_id or new_id()
            await send_error(send, http_error(exc, correlation_id), (request_id(correlation_id),))
            return
        exchange = _Exchange(turn, run_id, correlation_id, receive, send, created_s=self._clock() // 1000)
        if isinstance(outcome, Repeat):
            await exchange.repeat(outcome)
        elif turn.stream:
            await exchange.stream(outcome, self._outbound_bytes)
        else:
            await exchange.answer(outcome)

    async def _submit(self, caller: Caller, peer: PeerInfo, turn: ChatTurn, run_id: RunId) -> Run | Repeat:
        target = target_of(turn.model, peer.headers)
        if target.model:
            caller.require(Permission.SESSIONS_WRITE)  # as the command /model asks it
            self._router.resolve(target.model)  # an unknown model is refused before anything is stored
        key = session_of(caller, target.agent, peer.headers, turn.user)
        return await self._runs.submit(
            Inbound(
                caller=caller,
                key=key,
                run_id=run_id,
                kind="http",
                content=turn.content,
                model=target.model,
                system=turn.system,
                history=turn.history,
                options=turn.options,
                origin=origin_of(peer.headers, turn.user),
                wire_key=render_key(key),
            )
        )


class _Exchange:
    """One request that became a run, and its answer."""

    def __init__(
        self, turn: ChatTurn, run_id: RunId, correlation_id: str, receive: Receive, send: Send, *, created_s: int
    ) -> None:
        self._turn = turn
        self._completion_id = f"chatcmpl_{run_id}"
        self._correlation_id = correlation_id
        self._headers = (request_id(correlation_id),)
        self._receive = receive
        self._send = send
        self._created_s = created_s
        self._gone = False

    async def answer(self, run: Run) -> None:
        """Wait for the run and send its answer whole. A client that leaves stops the run."""

        def leave() -> None:
            self._gone = True
            run.abort("disconnect")

        try:
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(self._watch(leave))
                outcome = await _outcome(run, self._correlation_id)
                watcher.cancel()
        finally:
            run.abort("disconnect")  # of no effect once it has ended; it has not when this request is cancelled
        if self._gone:
            return
        if isinstance(outcome, HttpError):
            await send_error(self._send, outcome, self._headers)
        else:
            await self._send_whole(outcome)

    async def stream(self, run: Run, limit_bytes: int) -> None:
        """Send the answer as it comes. A client that leaves, or does not read, stops the run."""
        relay = Relay(self._encoder(), limit_bytes=limit_bytes)

        def listen(event: TurnEvent | RunEnded) -> None:
            if not relay.on_event(event):
                run.abort("slow_consumer")

        def leave() -> None:
            relay.leave()
            run.abort("disconnect")

        unsubscribe = run.listen(listen)
        try:
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(self._watch(leave))
                sender = group.create_task(relay.send_all(self._send, self._headers))
                outcome = await _outcome(run, self._correlation_id)
                if isinstance(outcome, HttpError):
                    relay.fail(outcome)
                else:
                    relay.complete(outcome)
                timeout_s = OVERFLOW_TIMEOUT_S if relay.overflowed else DRAIN_TIMEOUT_S
                if not (await asyncio.wait({sender}, timeout=timeout_s))[0]:
                    log.warning("run %s: the client did not read its answer for %.0f s", run.run_id, timeout_s)
                    sender.cancel()
                watcher.cancel()
        finally:
            unsubscribe()
            run.abort("disconnect")

    async def repeat(self, repeat: Repeat) -> None:
        """Answer a request whose idempotency key was used before."""
        try:
            answer = _kept_answer(repeat)
        except Exception as exc:
            await send_error(self._send, http_error(exc, self._correlation_id), self._headers)
            return
        if not self._turn.stream:
            await self._send_whole(answer)
            return
        relay = Relay(self._encoder(), limit_bytes=0)
        relay.replay(answer)
        await relay.send_all(self._send, self._headers)

    def _encoder(self) -> ChunkEncoder:
        return ChunkEncoder(
            completion_id=self._completion_id,
            created_s=self._created_s,
            model=self._turn.model,
            include_usage=self._turn.include_usage,
        )

    async def _send_whole(self, answer: Answer) -> None:
        body = encode_completion(
            answer, completion_id=self._completion_id, created_s=self._created_s, model=self._turn.model
        )
        await send_json(self._send, 200, body, (*source_header(answer.source), *self._headers))

    async def _watch(self, leave: Callable[[], None]) -> None:
        """Call ``leave`` when the client is gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        leave()


async def _outcome(run: Run, correlation_id: str) -> Answer | HttpError:
    """How the run ended, once that is stored."""
    try:
        result = await run.wait()
    except Exception as exc:
        return http_error(exc, correlation_id)
    return answer_of(result) if result.status == "ok" else _failure(result, correlation_id)


def _failure(result: RunResult, correlation_id: str) -> HttpError:
    if result.exception is not None:
        return http_error(result.exception, correlation_id)
    words = result.error or "the run ended without an answer"
    if result.status == "timeout":
        return HttpError(504, words, kind="api_error", code="run_timeout")
    if result.status == "aborted":
        return HttpError(
            409, "the run was stopped by another client", kind="api_error", code="run_aborted", headers=(DO_NOT_RETRY,)
        )
    if result.stop_reason:  # the gateway is shutting down
        return HttpError(503, words, kind="api_error", code="unavailable")
    return HttpError(502, words, kind="api_error", code="provider_error")


def _kept_answer(repeat: Repeat) -> Answer:
    """The answer that the first request with the same idempotency key got.

    Raises:
        HttpError: what that one failed with, or 409 when it still runs or ended without an answer.
    """
    if repeat.run is not None or repeat.status == "running":
        raise HttpError(
            409,
            "a request with this Idempotency-Key is still running",
            code="idempotency_key_in_use",
            headers=(("retry-after", "1"),),
        )
    if repeat.response is None or repeat.status not in ("ok", "error"):
        raise _unrepeatable(f"ended without an answer ({repeat.status})")
    kept = stored_answer(repeat.response)
    if isinstance(kept, StoredFailure):
        error = stored_error(kept.kind, kept.message, kept.provider)
        error.headers = tuple(dict.fromkeys((*error.headers, DO_NOT_RETRY)))  # it would only be told again
        raise error
    if kept.finish_reason == "tool_calls" and not kept.tool_calls:
        raise _unrepeatable("ended in tool calls, which were not kept")
    return kept


def _unrepeatable(why: str) -> HttpError:
    return HttpError(
        409,
        f"the first request with this Idempotency-Key {why}; use a new key",
        code="idempotency_key_used",
        headers=(DO_NOT_RETRY,),
    )


def _run_id(peer: PeerInfo) -> RunId:
    """The client's idempotency key, or a new id."""
    key = peer.headers.get("idempotency-key", "").strip()
    if not key:
        return RunId(new_id())
    if len(key) > MAX_IDEMPOTENCY_KEY or not (key.isascii() and key.isprintable()):
        raise invalid(
            f"Idempotency-Key: expected 1 to {MAX_IDEMPOTENCY_KEY} printable ASCII characters", "Idempotency-Key"
        )
    return RunId(key)
