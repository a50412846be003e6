"""What the bench asks of its load generators, and what comes back: one JSON line each way, see ``load.py``."""

from typing import TypeAlias

import msgspec

LONGEST_S = 10.0


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where the gateway under load listens, and the process whose processor time and memory count."""

    port: int
    token: str
    pid: int


class Job(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One measurement. ``tag`` makes the names of its sessions and runs new to the gateway."""

    target: Target
    tag: str


class RateJob(Job, frozen=True, kw_only=True):
    """The load runs for ``warm_up_s`` before anything counts, then for ``seconds``, and longer, at most ``LONGEST_S``,
    until there were three answers for each connection.
    """

    seconds: float
    warm_up_s: float


class RpcJob(RateJob, frozen=True, kw_only=True, tag="rpc"):
    """The same request over and over: ``connections`` sockets with ``in_flight`` unanswered requests on each."""

    method: str
    params: msgspec.Raw
    connections: int = 8
    in_flight: int = 8
    rows: int | None = None
    """How many sessions the answer must have; None where it is not a list of sessions."""


class TurnsJob(RateJob, frozen=True, kw_only=True, tag="turns"):
    """Turns by ``chat.send``, one at a time on each connection, each conversation ``turns_a_session`` turns long."""

    connections: int = 20
    tokens: int = 100
    turns_a_session: int = 10


class FirstJob(Job, frozen=True, kw_only=True, tag="first"):
    """First delta of a turn on one connection, and the model server's own first token, in turn, ``rounds`` times."""

    model_port: int
    rounds: int = 50
    tokens: int = 5


class StreamJob(RateJob, frozen=True, kw_only=True, tag="stream"):
    """Streamed ``/v1/chat/completions``, one at a time on each keep-alive connection."""

    model: str
    connections: int = 20
    tokens: int = 100


class IdleJob(Job, frozen=True, kw_only=True, tag="idle"):
    """Memory of ``connections`` that shook hands and then say nothing, after ``warm`` others, which load what is lazy.

    So many that what the handshakes leave behind weighs little, and not more than 1,024 open files allow.
    """

    connections: int = 800
    warm: int = 10


class ClientJob(msgspec.Struct, frozen=True, kw_only=True):
    """Model calls without a gateway, see ``client.py``: processor time in two windows of ``seconds``, each after
    ``warm_up_s``, then ``rounds`` times the first delta.

    ``lab`` is a name of ``labs.py``, ``origin`` where the server of ``services.py`` listens, ``account`` its file.
    """

    lab: str
    origin: str
    account: str
    seconds: float
    warm_up_s: float = 0.5
    rounds: int = 50


AnyJob: TypeAlias = RpcJob | TurnsJob | FirstJob | StreamJob | IdleJob


class Outcome(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What was measured; ``details`` explain it in the JSON report and are never compared with a budget."""

    details: dict[str, float] = {}


class Rate(Outcome, frozen=True, kw_only=True, tag="rate"):
    """``done`` answers or turns in ``elapsed_s``; processor time of the gateway, its children included, meanwhile."""

    done: int
    failed: int
    elapsed_s: float
    gateway_cpu_s: float
    generator_cpu_s: float
    """Of ``load.py`` itself: near ``elapsed_s`` it, and not the gateway, is what was measured."""

    @property
    def per_s(self) -> float:
        return self.done / self.elapsed_s

    @property
    def gateway_cpu_ms_each(self) -> float:
        return self.gateway_cpu_s * 1000 / self.done


class Delay(Outcome, frozen=True, kw_only=True, tag="delay"):
    """Medians, in milliseconds."""

    gateway_ms: float
    model_ms: float

    @property
    def over_ms(self) -> float:
        return self.gateway_ms - self.model_ms


class Memory(Outcome, frozen=True, kw_only=True, tag="memory"):
    before_bytes: int
    after_bytes: int
    connections: int

    @property
    def bytes_each(self) -> float:
        return (self.after_bytes - self.before_bytes) / self.connections


class Calls(Outcome, frozen=True, kw_only=True, tag="calls"):
    """Processor time a chunk, in microseconds, and medians to the first delta, in milliseconds.

    Details: ``reader_us``, the reader alone a chunk, and ``apart_us``, a chunk that comes by itself.
    """

    chunk_us: float
    router_ms: float
    model_ms: float

    @property
    def over_ms(self) -> float:
        return self.router_ms - self.model_ms


class Failed(Outcome, frozen=True, kw_only=True, tag="failed"):
    """The load could not be made; ``reason`` says why in one line."""

    reason: str


AnyOutcome: TypeAlias = Rate | Delay | Memory | Calls | Failed

encode = msgspec.json.encode


def decode_job(data: bytes) -> AnyJob:
    job: AnyJob = msgspec.json.decode(data, type=AnyJob)
    return job


def decode_client_job(data: bytes) -> ClientJob:
    return msgspec.json.decode(data, type=ClientJob)


def decode_outcome(data: bytes) -> AnyOutcome:
    outcome: AnyOutcome = msgspec.json.decode(data, type=AnyOutcome)
    return outcome
