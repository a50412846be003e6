"""The load generator: ``python -m bench.load`` reads one job (JSON) from stdin and writes its outcome to stdout.

It is a process of its own, so that its work is never counted as the gateway's, and it reads the gateway's processor
time and memory itself, at the very edges of the measured window.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import uvloop

from bench import jobs, usage
from bench.jobs import FirstJob, IdleJob, RpcJob, StreamJob, TurnsJob
from bench.sse import SseConnection, completion_request
from bench.wsclient import Connection, RefusedError, close_all, connect, connect_many, request

DRAIN_S = 10.0
ANSWER_TIMEOUT_S = 30.0


class LoadError(Exception):
    """The load cannot be made, or what came back is not what was asked for; ``str()`` says what."""


@dataclass(slots=True)
class Tally:
    """What has happened so far; a rate is the difference of two readings."""

    done: int = 0
    failed: int = 0
    frames: int = 0
    bytes: int = 0
    over: bool = False
    """Nothing new may be begun."""
    complaint: str = ""
    """The first failure, in the gateway's words."""
    took_s: list[float] = field(default_factory=list)

    def fail(self, complaint: str) -> None:
        self.failed += 1
        self.complaint = self.complaint or complaint


async def _run_for(seconds: float, ends: Iterable[asyncio.Future[str]]) -> None:
    """Let the load run; a connection that ends meanwhile is an error."""
    ended, _ = await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for end in ended:
        raise LoadError(end.result())


async def _measure(job: jobs.RateJob, tally: Tally, ends: Sequence[asyncio.Future[str]]) -> jobs.Rate:
    """Read the tally and both processes' time at the start and the end of the window, after the warm-up."""
    await _run_for(job.warm_up_s, ends)
    tally.took_s.clear()
    done, failed, frames, received = tally.done, tally.failed, tally.frames, tally.bytes
    gateway_cpu_s, own_cpu_s, started = usage.cpu_s(job.target.pid), usage.own_cpu_s(), time.perf_counter()
    await _run_for(job.seconds, ends)
    while tally.done - done < 3 * len(ends) and time.perf_counter() - started < jobs.LONGEST_S:
        await _run_for(0.1, ends)
    elapsed_s = time.perf_counter() - started
    gateway_cpu_s = usage.cpu_s(job.target.pid) - gateway_cpu_s
    own_cpu_s = usage.own_cpu_s() - own_cpu_s
    done = tally.done - done
    if not done:
        raise LoadError(tally.complaint or f"nothing was answered within {elapsed_s:.1f} s")
    details = {"frames_each": (tally.frames - frames) / done, "bytes_each": (tally.bytes - received) / done}
    if len(tally.took_s) >= 2:
        cuts = statistics.quantiles(tally.took_s, n=100)
        details |= {"p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}
    return jobs.Rate(
        done=done,
        failed=tally.failed - failed,
        elapsed_s=elapsed_s,
        gateway_cpu_s=gateway_cpu_s,
        generator_cpu_s=own_cpu_s,
        details=details,
    )


class RpcClient:
    """Keeps ``in_flight`` requests unanswered on one connection: each answer sends its own request again."""

    def __init__(self, connection: Connection, job: RpcJob, tally: Tally) -> None:
        self._connection, self._tally = connection, tally
        self._frames = {
            bytes([65 + slot]): request(chr(65 + slot), job.method, job.params) for slot in range(job.in_flight)
        }
        self.sample = b""
        connection.on_frame = self._on_frame

    def start(self) -> None:
        for frame in self._frames.values():
            self._connection.send(frame)

    def _on_frame(self, data: memoryview) -> None:
        head = bytes(data[:64])
        if b'"type":"res"' not in head:
            return
        tally = self._tally
        if b'"ok":true' in head:
            tally.done += 1
            tally.bytes += len(data)
        else:
            tally.fail(str(data, "utf-8")[:300])
        at = head.index(b'"id":"') + 6
        self._connection.send(self._frames[head[at : at + 1]])
        if not self.sample:
            self.sample = bytes(data)


async def rpc(job: RpcJob) -> jobs.Rate:
    tally = Tally()
    connections = await connect_many(job.target, job.connections)
    clients = [RpcClient(connection, job, tally) for connection in connections]
    for client in clients:
        client.start()
    rate = await _measure(job, tally, [connection.closed for connection in connections])
    if tally.failed:
        raise LoadError(f"{tally.failed} of {tally.failed + tally.done} requests failed, the first: {tally.complaint}")
    for client in clients:
        _check_answer(job, client.sample)
    for connection in connections:
        connection.transport.disconnect(graceful=False)
    return rate


def _check_answer(job: RpcJob, sample: bytes) -> None:
    """A quick answer must also be the right one."""
    if job.rows is not None and sample:
        rows = len(msgspec.json.decode(sample)["payload"]["sessions"])
        if rows != job.rows:
            raise LoadError(f"{job.method} answered {rows} sessions instead of {job.rows}")


class TurnClient:
    """One conversation after the other on one connection, a turn at a time; a turn is over at its chat ``final``.

    Every connection of a person receives the events of all of that person's runs, so frames of others are told apart by
    bytes, and only the own final is decoded.
    """

    def __init__(self, connection: Connection, name: str, job: TurnsJob | FirstJob, tally: Tally) -> None:
        self._connection, self._name, self._tally = connection, name, tally
        self._tokens = job.tokens
        self._run_mark = b""
        self._sent_at = 0.0
        self._first_at = 0.0
        self._turn: asyncio.Future[str] | None = None
        connection.on_frame = self._on_frame

    async def turn(self, session: int, number: int) -> float:
        """Run one turn and return the time to its first delta in seconds (0.0 if it had none).

        Raises:
            LoadError: it ended otherwise than by a complete answer.
        """
        run_id = f"{self._name}-{number}"
        self._run_mark = f'"runId":"{run_id}"'.encode()
        params = {
            "sessionKey": f"agent:main:{self._name}-{session}",
            "message": f"tokens={self._tokens}",
            "idempotencyKey": run_id,
        }
        self._turn = asyncio.get_running_loop().create_future()
        self._first_at = 0.0
        self._sent_at = time.perf_counter()
        self._connection.send(request(run_id, "chat.send", params))
        problem = await self._turn
        if problem:
            raise LoadError(problem)
        return self._first_at - self._sent_at if self._first_at else 0.0

    async def turns(self, turns_a_session: int) -> None:
        """Turn after turn until ``tally.over``; what fails is counted and the next one begins a new session."""
        session, number = 0, 1
        while not self._tally.over:
            started = time.perf_counter()
            try:
                await self.turn(session, number)
            except LoadError as exc:
                self._tally.fail(str(exc))
                session += 1
            else:
                self._tally.done += 1
                self._tally.took_s.append(time.perf_counter() - started)
            session += number % turns_a_session == 0
            number += 1

    def _on_frame(self, data: memoryview) -> None:
        self._tally.frames += 1
        self._tally.bytes += len(data)
        head = bytes(data[:64])
        if b'"event":"chat"' in head:
            self._on_chat(bytes(data))
        elif b'"type":"res"' in head and b'"ok":false' in bytes(data[:200]):
            self._end(str(data, "utf-8")[:300])

    def _on_chat(self, data: bytes) -> None:
        if self._run_mark not in data:
            return
        at = data.index(b'"state":"') + 9
        if data.startswith(b"delta", at):
            self._first_at = self._first_at or time.perf_counter()
        elif data.startswith(b"final", at):
            self._end(self._problem_of(data))
        else:
            self._end(data.decode()[:300])

    def _problem_of(self, final: bytes) -> str:
        message = msgspec.json.decode(final)["payload"].get("message")
        if message is None:
            return "the turn ended without a message (queued behind one that had not ended?)"
        text = "".join(block.get("text", "") for block in message["content"])
        words = len(text.split())
        return "" if words == self._tokens else f"the answer has {words} words instead of {self._tokens}: {text[:100]}"

    def _end(self, problem: str) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and not turn.done():
            turn.set_result(problem)


async def turns(job: TurnsJob) -> jobs.Rate:
    tally = Tally()
    connections = await connect_many(job.target, job.connections)
    clients = [
        TurnClient(connection, f"{job.tag}-{number}", job, tally) for number, connection in enumerate(connections)
    ]
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        await clients[0].turn(0, 0)  # alone: OpenClaw's first turn makes its workspace, and fails beside another
    workers = [asyncio.create_task(client.turns(job.turns_a_session)) for client in clients]
    rate = await _measure(job, tally, [connection.closed for connection in connections])
    await _drain(workers, tally)
    await close_all(connections)
    return _complete(rate, tally)


async def first(job: FirstJob) -> jobs.Delay:
    """Each round asks the model server itself, then the gateway, so that both see the same machine."""
    tally = Tally()
    connection = await connect(job.target)
    client = TurnClient(connection, job.tag, job, tally)
    model = SseConnection(job.model_port)
    direct = completion_request(job.model_port, job.target.token, "mock-1", f"tokens={job.tokens}")
    gateway_s: list[float] = []
    model_s: list[float] = []
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        await client.turn(0, 0)
        await model.stream(direct)
        for number in range(1, job.rounds + 1):
            model_s.append((await model.stream(direct)).first_s)
            first_s = await client.turn(number // 10, number)
            if not first_s:
                raise LoadError("a turn ended without a delta")
            gateway_s.append(first_s)
    model.close()
    await close_all([connection])
    return jobs.Delay(
        gateway_ms=statistics.median(gateway_s) * 1000,
        model_ms=statistics.median(model_s) * 1000,
        details={
            "gateway_p95_ms": statistics.quantiles(gateway_s, n=20)[-1] * 1000,
            "model_p95_ms": statistics.quantiles(model_s, n=20)[-1] * 1000,
        },
    )


async def _completions(connection: SseConnection, payload: bytes, tokens: int, tally: Tally) -> None:
    """Answer after answer until ``tally.over``."""
    while not tally.over:
        answer = await connection.stream(payload)
        words = len(answer.text.split())
        if answer.status != 200 or words != tokens:
            tally.fail(f"status {answer.status}, {words} words instead of {tokens}: {answer.text[:100]}")
            continue
        tally.done += 1
        tally.frames += answer.chunks
        tally.took_s.append(answer.took_s)


async def stream(job: StreamJob) -> jobs.Rate:
    tally = Tally()
    payload = completion_request(job.target.port, job.target.token, job.model, f"tokens={job.tokens}")
    connections = [SseConnection(job.target.port) for _ in range(job.connections)]
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        await connections[0].stream(payload)  # alone, as in turns()
    workers = [asyncio.create_task(_completions(connection, payload, job.tokens, tally)) for connection in connections]
    ends = [_end_of(worker) for worker in workers]
    rate = await _measure(job, tally, ends)
    await _drain(workers, tally)
    for connection in connections:
        connection.close()
    return _complete(rate, tally)


def _end_of(worker: asyncio.Task[None]) -> asyncio.Future[str]:
    """A worker that stops by itself before the end of the measurement is an error; this says which."""
    end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def tell(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            end.set_result(str(task.exception()) if task.exception() else "the load stopped")

    worker.add_done_callback(tell)
    return end


async def _drain(workers: Sequence[asyncio.Task[None]], tally: Tally) -> None:
    """Let every turn under way end, so that the next measurement meets an idle gateway."""
    tally.over = True
    _, left = await asyncio.wait(workers, timeout=DRAIN_S)
    for worker in left:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


def _complete(rate: jobs.Rate, tally: Tally) -> jobs.Rate:
    """A rate counts only if no turn failed: a gateway that loses turns is not quick."""
    if tally.failed:
        raise LoadError(f"{tally.failed} of {tally.failed + tally.done} turns failed, the first: {tally.complaint}")
    return rate


async def idle(job: IdleJob) -> jobs.Memory:
    connections = await connect_many(job.target, job.warm)
    before = await asyncio.to_thread(usage.settled_rss_bytes, job.target.pid)
    while len(connections) < job.warm + job.connections:
        connections += await connect_many(job.target, 10)
        await asyncio.sleep(0.03)  # not a storm: what a burst of handshakes piles up is not an idle connection's memory
    after = await asyncio.to_thread(usage.settled_rss_bytes, job.target.pid)
    for connection in connections:
        if connection.closed.done():
            raise LoadError(connection.closed.result())
    await close_all(connections)
    return jobs.Memory(before_bytes=before, after_bytes=after, connections=job.connections)


async def perform(job: jobs.AnyJob) -> jobs.AnyOutcome:
    """Make the load of ``job``; never raises for what the gateway did."""
    try:
        match job:
            case RpcJob():
                return await rpc(job)
            case TurnsJob():
                return await turns(job)
            case FirstJob():
                return await first(job)
            case StreamJob():
                return await stream(job)
            case IdleJob():
                return await idle(job)
    except TimeoutError:
        return jobs.Failed(reason="the gateway did not answer in time")
    except (LoadError, RefusedError, OSError) as exc:
        return jobs.Failed(reason=str(exc) or type(exc).__name__)


def main() -> None:
    outcome = uvloop.run(perform(jobs.decode_job(sys.stdin.buffer.read())))
    sys.stdout.buffer.write(jobs.encode(outcome))


if __name__ == "__main__":
    main()
