"""The measurements, one function a stage. With a peer every sample is taken in pairs, first the one, then the other."""

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from bench import jobs, usage
from bench.jobs import Calls, ClientJob, Delay, FirstJob, IdleJob, Memory, Rate, RpcJob, StreamJob, Target, TurnsJob
from bench.peers import ROOT, SKYNET_FIVE, Home, NotInstalledError, Peer, environment, new_home, running
from bench.process import Child, StartError
from bench.rows import APIS

LOAD_TIMEOUT_S = 120.0
SERVICES_TIMEOUT_S = 20.0
SEARCH_TIMEOUT_S = 900.0
STORED_SESSIONS = 10_000
FEW_SESSIONS = 40
PAGE_ROWS = 50


Item = TypeVar("Item")


class MeasureError(Exception):
    """A load could not be made; ``str()`` says why."""


@dataclass(slots=True)
class Measured:
    """What one gateway did in one row."""

    samples: list[float] = field(default_factory=list)
    details: list[dict[str, float]] = field(default_factory=list)
    failure: str = ""


@dataclass(slots=True)
class Bench:
    """The contenders (ours first), how long and how often, and what was found: ``found[row][name]``."""

    contenders: tuple[Peer, ...]
    directory: Path
    model_port: int
    seconds: float
    repeat: int
    progress: Callable[[str], None]
    found: dict[str, dict[str, Measured]] = field(default_factory=dict)

    def pairs(self, count: int) -> Iterator[tuple[int, Peer]]:
        """Every contender ``count`` times, the order turned round each time."""
        return by_turns(self.contenders, count)

    def pairs_of(self, row: str, count: int) -> Iterator[tuple[str, Peer]]:
        """The same with the row that is measured, our gateway a second time as that of the row's ``-five``."""
        rows = [(row, peer) for peer in self.contenders]
        return (each for _, each in by_turns([*rows, (f"{row}-five", SKYNET_FIVE)], count))

    def measured(self, row: str, peer: Peer) -> Measured:
        return self.found.setdefault(row, {}).setdefault(peer.name, Measured())

    def add(self, row: str, peer: Peer, value: float, details: Mapping[str, float] | None = None) -> None:
        measured = self.measured(row, peer)
        measured.samples.append(value)
        measured.details.append(dict(details or {}))
        self.progress(f"{peer.name}: {row} {value:,.2f}")

    def fail(self, rows: tuple[str, ...], peer: Peer, reason: object) -> None:
        for row in rows:
            self.measured(row, peer).failure = str(reason)
        self.progress(f"{peer.name}: {', '.join(rows)} failed: {reason}")

    def home(self, sessions: int = 0) -> Home:
        return new_home(self.directory, self.model_port, sessions)


def by_turns(items: Sequence[Item], count: int) -> Iterator[tuple[int, Item]]:
    """All items ``count`` times, the order turned round each time."""
    for number in range(count):
        for item in items if number % 2 == 0 else reversed(items):
            yield number, item


def tag() -> str:
    return uuid.uuid4().hex[:8]


def perform(job: jobs.AnyJob | ClientJob) -> jobs.Rate | jobs.Delay | jobs.Memory | jobs.Calls:
    """Let a load generator do ``job`` in a process of its own.

    Raises:
        MeasureError: it could not.
    """
    done = subprocess.run(
        [sys.executable, "-m", "bench.client" if isinstance(job, ClientJob) else "bench.load"],
        input=jobs.encode(job),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment(),
        timeout=LOAD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise MeasureError(f"the load generator ended with status {done.returncode}")
    outcome = jobs.decode_outcome(done.stdout)
    if isinstance(outcome, jobs.Failed):
        raise MeasureError(outcome.reason)
    return outcome


def rate_of(job: RpcJob | TurnsJob | StreamJob) -> tuple[Rate, dict[str, float]]:
    """Perform ``job``; the details say besides how busy each side was (1.0 is one processor)."""
    outcome = perform(job)
    assert isinstance(outcome, Rate)
    details = outcome.details | {
        "gateway_cpu_ms_each": outcome.gateway_cpu_ms_each,
        "gateway_busy": outcome.gateway_cpu_s / outcome.elapsed_s,
        "generator_busy": outcome.generator_cpu_s / outcome.elapsed_s,
    }
    return outcome, details


PROBLEMS = (MeasureError, StartError, NotInstalledError, subprocess.TimeoutExpired)


def start(bench: Bench) -> None:
    """Each gateway starts once unmeasured, which makes its files and bytecode, then at least five times."""
    homes = {}
    for row, peer in bench.pairs_of("start", 1):
        try:
            homes[row, peer.name] = bench.home()
            with running(peer, homes[row, peer.name]) as gateway:
                usage.settled_rss_bytes(gateway.target.pid)
        except PROBLEMS as exc:
            bench.fail((row,), peer, exc)
    for row, peer in bench.pairs_of("start", max(5, bench.repeat)):
        if not bench.measured(row, peer).failure:
            try:
                with running(peer, homes[row, peer.name]) as gateway:
                    bench.add(row, peer, gateway.start_s, {"cpu_s": usage.cpu_s(gateway.target.pid)})
            except PROBLEMS as exc:
                bench.fail((row,), peer, exc)


def memory(bench: Bench) -> None:
    """Connections are measured on our gateway only: V8 grows its heap by 200 MB under the first few hundred handshakes
    and by nothing under the next, so resident memory does not tell what one connection holds there.
    """
    for row, peer in bench.pairs_of("memory", bench.repeat):
        has_connections = peer is bench.contenders[0]
        try:
            with running(peer, bench.home()) as gateway:
                bench.add(row, peer, usage.settled_rss_bytes(gateway.target.pid) / 1e6)
                if has_connections:
                    outcome = perform(IdleJob(target=gateway.target, tag=tag()))
                    assert isinstance(outcome, Memory)
                    bench.add("connection", peer, outcome.bytes_each / 1e3)
        except PROBLEMS as exc:
            bench.fail((row, "connection") if has_connections else (row,), peer, exc)


@dataclass(frozen=True, slots=True)
class Call:
    """A request of the ``rpc`` stage. Its row is measured with ``FEW_SESSIONS`` stored; its ``-stored`` row is the rate
    with ``STORED_SESSIONS`` as a share of the one with ``like``, where the answer is of the same size.
    """

    row: str
    method: str
    params: msgspec.Raw
    lists: bool
    like: int

    @property
    def stored_row(self) -> str:
        return f"{self.row}-stored"

    def job(self, target: Target, sessions: int, seconds: float, warm_up_s: float) -> RpcJob:
        return RpcJob(
            target=target,
            tag=tag(),
            seconds=seconds,
            warm_up_s=warm_up_s,
            method=self.method,
            params=self.params,
            rows=min(sessions, PAGE_ROWS) if self.lists else None,
        )


CALLS = (
    Call("health", "health", msgspec.Raw(b"{}"), lists=False, like=FEW_SESSIONS),
    Call("list", "sessions.list", msgspec.Raw(b'{"limit":%d}' % PAGE_ROWS), lists=True, like=PAGE_ROWS),
)


def rpc(bench: Bench) -> None:
    """Gateways with few and with many sessions stored all run at once; only one is under load at a time."""
    with ExitStack() as stack:
        targets: dict[tuple[str, int], Target] = {}
        for peer in bench.contenders:
            for sessions in (FEW_SESSIONS, PAGE_ROWS, STORED_SESSIONS):
                bench.progress(f"{peer.name}: start with {sessions:,} sessions")
                try:
                    gateway = stack.enter_context(running(peer, bench.home(sessions)))
                except PROBLEMS as exc:
                    bench.fail(tuple(row for call in CALLS for row in (call.row, call.stored_row)), peer, exc)
                else:
                    usage.settled_rss_bytes(gateway.target.pid)
                    targets[peer.name, sessions] = gateway.target
        for call in CALLS:
            for number, peer in bench.pairs(bench.repeat):
                _rates(bench, call, peer, targets, peer.warm_up_s if number == 0 else 0.5)


def _rates(bench: Bench, call: Call, peer: Peer, targets: Mapping[tuple[str, int], Target], warm_up_s: float) -> None:
    """One sample of both rows of ``call``, taken one right after the other."""
    like_per_s = 0.0
    for sessions in sorted({FEW_SESSIONS, call.like, STORED_SESSIONS}):
        row = call.row if sessions == FEW_SESSIONS else call.stored_row
        target = targets.get((peer.name, sessions))
        if target is None or bench.measured(row, peer).failure:
            continue
        try:
            rate, details = rate_of(call.job(target, sessions, bench.seconds, warm_up_s))
        except PROBLEMS as exc:
            bench.fail((row,), peer, exc)
            continue
        usage.settled_rss_bytes(target.pid)  # what it still answers must not slow the next one down
        if sessions == FEW_SESSIONS:
            bench.add(row, peer, rate.per_s, details)
        if sessions == call.like:
            like_per_s = rate.per_s
        if sessions == STORED_SESSIONS and like_per_s:
            own = {"per_s": rate.per_s, "like_per_s": like_per_s}
            bench.add(row, peer, rate.per_s / like_per_s, details | own)


def turns(bench: Bench) -> None:
    """A fresh gateway for every sample, so that none pays for the conversations of the one before."""
    for _, peer in bench.pairs(bench.repeat):
        try:
            with running(peer, bench.home()) as gateway:
                usage.settled_rss_bytes(gateway.target.pid)
                rate, details = rate_of(
                    TurnsJob(target=gateway.target, tag=tag(), seconds=bench.seconds, warm_up_s=peer.warm_up_s)
                )
                bench.add("turns", peer, rate.per_s, details)
                bench.add("turn-cpu", peer, rate.gateway_cpu_ms_each)
                rss_bytes = usage.settled_rss_bytes(gateway.target.pid)
                bench.progress(f"{peer.name}: {rss_bytes / 1e6:,.0f} MB after {rate.done} turns and the warm-up")
                delay = perform(FirstJob(target=gateway.target, tag=tag(), model_port=bench.model_port))
                assert isinstance(delay, Delay)
                own = {"gateway_ms": delay.gateway_ms, "model_ms": delay.model_ms}
                bench.add("first", peer, delay.over_ms, delay.details | own)
        except PROBLEMS as exc:
            bench.fail(("turns", "turn-cpu", "first"), peer, exc)


def stream(bench: Bench) -> None:
    """A fresh gateway for every sample, as in ``turns``."""
    for _, peer in bench.pairs(bench.repeat):
        try:
            with running(peer, bench.home()) as gateway:
                usage.settled_rss_bytes(gateway.target.pid)
                rate, details = rate_of(
                    StreamJob(
                        target=gateway.target,
                        tag=tag(),
                        seconds=bench.seconds,
                        warm_up_s=peer.warm_up_s,
                        model=peer.completion_model,
                    )
                )
                bench.add("stream", peer, rate.per_s, details)
        except PROBLEMS as exc:
            bench.fail(("stream",), peer, exc)


def providers(bench: Bench) -> None:
    """The client of each wire API in a process of its own, without a gateway. Peers have no part in it."""
    ours, account = bench.contenders[0], bench.directory / "account.json"
    command = (sys.executable, "-m", "bench.services", "--account", str(account))
    try:
        with Child(command, env=environment(), cwd=ROOT, log=bench.directory / "services.log") as server:
            origin = server.wait_for_output(r"http://127\.0\.0\.1:\d+", SERVICES_TIMEOUT_S)[0]
            for _, name in by_turns(APIS, bench.repeat):
                _calls(bench, ours, ClientJob(lab=name, origin=origin, account=str(account), seconds=bench.seconds / 2))
    except StartError as exc:
        bench.fail(tuple(row for name in APIS for row in (f"{name}-chunk", f"{name}-first")), ours, exc)


def _calls(bench: Bench, ours: Peer, job: ClientJob) -> None:
    """One sample of both rows of an API."""
    chunk, first = f"{job.lab}-chunk", f"{job.lab}-first"
    try:
        outcome = perform(job)
    except PROBLEMS as exc:
        bench.fail((chunk, first), ours, exc)
        return
    assert isinstance(outcome, Calls)
    bench.add(chunk, ours, outcome.chunk_us, outcome.details)
    bench.add(first, ours, outcome.over_ms, {"router_ms": outcome.router_ms, "model_ms": outcome.model_ms})


def sandbox(bench: Bench) -> None:
    """Commands without a gateway, in a process of its own. A sample is the median of a hundred pairs."""
    ours = bench.contenders[0]
    for _ in range(bench.repeat):
        command = (sys.executable, "-m", "bench.sandbox")
        done = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=LOAD_TIMEOUT_S, check=False)
        if done.returncode != 0:
            bench.fail(("sandbox",), ours, done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])
            return
        found = msgspec.json.decode(done.stdout, type=dict[str, float])
        bench.add("sandbox", ours, found["over_ms"], found)


def search(bench: Bench) -> None:
    """Memories and transcripts through their stores, in a process of its own; once, because filling takes long."""
    ours = bench.contenders[0]
    for name, arguments in (
        ("one", ("--people", "1", "--each", "100000")),
        ("many", ("--people", "1000", "--each", "1000")),
    ):
        rows = (f"search-{name}-p50", f"search-{name}-p99", f"learn-{name}", f"forget-{name}")
        values = ("p50_ms", "p99_ms", "learn_ms", "forget_ms")
        _searched(bench, ours, arguments, dict(zip(rows, values, strict=True)))
    _searched(bench, ours, (), {f"hit-{most}": f"hit_{most}" for most in (5, 10, 20)})


def _searched(bench: Bench, ours: Peer, arguments: Sequence[str], rows: Mapping[str, str]) -> None:
    command = (sys.executable, "-m", "bench.search", *arguments)
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, timeout=SEARCH_TIMEOUT_S, check=False)
    if done.returncode != 0:
        bench.fail(tuple(rows), ours, f"the measurement ended with status {done.returncode}")
        return
    found = msgspec.json.decode(done.stdout, type=dict[str, float])
    for row, value in rows.items():
        bench.add(row, ours, found[value], found)


STAGES: dict[str, Callable[[Bench], None]] = {
    "start": start,
    "memory": memory,
    "rpc": rpc,
    "turns": turns,
    "stream": stream,
    "providers": providers,
    "sandbox": sandbox,
    "search": search,
}
