"""The gateway's client of one provider under load: ``python -m bench.client`` reads a ``ClientJob`` (JSON) from stdin
and writes its outcome to stdout.

It is a process of its own, so that its processor time is that of model calls alone: the router, the wire API, the
signature, HTTP, and the event loop that the gateway runs on too.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from bench import jobs
from bench.jobs import Calls, ClientJob
from bench.labs import LABS, Lab
from bench.raw import RawConnection, recorded
from skynet_agent.errors import ProviderError
from skynet_agent.events import TextDelta
from skynet_agent.messages import TextBlock, UserMessage
from skynet_agent.reading import Source
from skynet_agent.requests import ModelRequest
from skynet_agent.router import Router

TOKENS = 100
CONVERSATIONS = 20
APART_CONVERSATIONS = 50
APART_MS = 2
FIRST_TOKENS = 5
SYSTEM = ("You are the assistant of a household. " * 20, "You talk with Ada. " * 5)
READER_ROUNDS = 30


class WrongAnswer(Exception):  # noqa: N818 - reads as what happened
    """An answer is not what was asked for."""


def ask(prompt: str) -> ModelRequest:
    return ModelRequest(messages=[UserMessage([TextBlock(prompt)], 1)], system=SYSTEM)


@dataclass(slots=True)
class Tally:
    """What has come so far, and whether another answer may be asked for."""

    chunks: int = 0
    over: bool = False


async def answers(router: Router, prompt: str, tally: Tally) -> None:
    """Ask for ``TOKENS`` tokens again and again until ``tally.over``.

    Raises:
        ProviderError: a call failed.
        WrongAnswer: the chunks are not as many as the tokens.
    """
    request = ask(prompt)
    while not tally.over:
        chunks = 0
        async for event in router.stream(request):
            if isinstance(event, TextDelta):
                chunks += 1
                tally.chunks += 1
        if chunks != TOKENS:
            raise WrongAnswer(f"{chunks} chunks instead of {TOKENS}")


async def chunk_us(router: Router, job: ClientJob, *, conversations: int, prompt: str) -> float:
    """Processor microseconds of this process a chunk, in a window that is open after the warm-up."""
    tally = Tally()
    async with asyncio.TaskGroup() as group:
        for _ in range(conversations):
            group.create_task(answers(router, prompt, tally))
        await run_for(job.warm_up_s, tally)
        chunks, cpu_s = tally.chunks, time.process_time()
        await run_for(job.seconds, tally)
        chunks, cpu_s = tally.chunks - chunks, time.process_time() - cpu_s
        tally.over = True
    return cpu_s * 1e6 / chunks


async def run_for(seconds: float, tally: Tally) -> None:
    """Let the answers come, for longer if there are less than ``TOKENS`` chunks by then."""
    enough = tally.chunks + TOKENS
    await asyncio.sleep(seconds)
    while tally.chunks < enough:  # noqa: ASYNC110 - an event for every chunk would be measured too
        await asyncio.sleep(0.01)


async def first_s(router: Router) -> float:
    """Seconds from ``Router.stream`` to the first delta. The answer is read to its end."""
    found: float | None = None
    started = time.perf_counter()
    async with aclosing(router.stream(ask(f"tokens={FIRST_TOKENS}"))) as events:
        async for event in events:
            if found is None and isinstance(event, TextDelta):
                found = time.perf_counter() - started
    if found is None:
        raise WrongAnswer("an answer without a delta")
    return found


async def recorded_call(lab: Lab, job: ClientJob, prompt: str) -> bytes:
    """The request that the gateway would send for ``prompt``, as bytes."""

    async def send(origin: str) -> None:
        async with aclosing(Router([lab.row(origin, Path(job.account))], retries=0)) as router:
            async for _ in router.stream(ask(prompt)):
                pass

    return await recorded(port_of(job.origin), send)


def port_of(origin: str) -> int:
    port = urlsplit(origin).port
    assert port is not None
    return port


def reader_us(lab: Lab, chunks: list[bytes]) -> float:
    """Processor microseconds of the reader alone a token, fed with an answer of ``TOKENS`` chunk by chunk; median."""
    took_s = []
    source, model = Source("lab"), lab.model_info
    for _ in range(READER_ROUNDS):
        reader = lab.reader(source, model)
        started = time.process_time()
        for chunk in chunks:
            reader.feed(chunk)
        took_s.append(time.process_time() - started)
        if not reader.ended:
            reader.close()
        if reader.failure is not None:
            raise reader.failure
    return statistics.median(took_s) * 1e6 / TOKENS


async def measure(job: ClientJob) -> Calls:
    """Do ``job``.

    Raises:
        ProviderError, ConnectionError, WrongAnswer, ExceptionGroup: a call failed; a group of the same.
    """
    lab, port, raw = LABS[job.lab], port_of(job.origin), RawConnection()
    async with aclosing(Router([lab.row(job.origin, Path(job.account))], retries=0)) as router:
        at_once_us = await chunk_us(router, job, conversations=CONVERSATIONS, prompt=f"tokens={TOKENS}")
        apart = f"tokens={TOKENS} delay={APART_MS}"
        apart_us = await chunk_us(router, job, conversations=APART_CONVERSATIONS, prompt=apart)
        call = await recorded_call(lab, job, f"tokens={FIRST_TOKENS}")
        model_s, router_s = [], []
        warm_up = job.rounds // 10 + 1
        for _ in range(warm_up + job.rounds):
            model_s.append(await raw.ask(port, call))
            router_s.append(await first_s(router))
        del model_s[:warm_up], router_s[:warm_up]
        await raw.ask(port, await recorded_call(lab, job, f"tokens={TOKENS}"))
        reading_us = reader_us(lab, raw.chunks())
        raw.close()
    return Calls(
        chunk_us=at_once_us,
        router_ms=statistics.median(router_s) * 1000,
        model_ms=statistics.median(model_s) * 1000,
        details={"reader_us": reading_us, "apart_us": apart_us},
    )


def main() -> None:
    job = jobs.decode_client_job(sys.stdin.buffer.read())
    os.environ.update(LABS[job.lab].env)
    outcome: Calls | jobs.Failed
    try:
        outcome = uvloop.run(measure(job))
    except (ProviderError, OSError, WrongAnswer) as exc:
        outcome = jobs.Failed(reason=f"{type(exc).__name__}: {exc}")
    except ExceptionGroup as group:
        outcome = jobs.Failed(reason=f"{type(group.exceptions[0]).__name__}: {group.exceptions[0]}")
    sys.stdout.buffer.write(jobs.encode(outcome))


if __name__ == "__main__":
    main()
