"""Skynet's own ``terminal.*``: one-shot commands, background jobs and interactive terminals of a person.

A ``cursor`` counts the bytes that a terminal or a job has written since it began; whoever reads goes on with the one
that the answer before gave. What was given up meanwhile is counted in ``dropped``. ``data`` never ends inside a
character; what is no UTF-8 is replaced.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.params import NonNegativeInt, Params, Result

MAX_COMMAND_CHARS = 65_536
MAX_EXEC_TIMEOUT_MS = 300_000
MAX_JOB_TIMEOUT_MS = 86_400_000
MAX_WAIT_MS = 30_000
MAX_READ_BYTES = 1_048_576
DEFAULT_READ_BYTES = 65_536
MAX_WRITE_CHARS = 1_048_576
MAX_LISTED_JOBS = 200
DEFAULT_LISTED_JOBS = 50
DEFAULT_COLS = 220
DEFAULT_ROWS = 50

_NO_NUL = r"\A[^\x00]*\Z"
CommandText = Annotated[str, Meta(min_length=1, max_length=MAX_COMMAND_CHARS, pattern=r"\A\s*[^\s\x00][^\x00]*\Z")]
PathText = Annotated[str, Meta(min_length=1, max_length=4096, pattern=_NO_NUL)]
TitleText = Annotated[str, Meta(max_length=200, pattern=_NO_NUL)]
TerminalId = Annotated[str, Meta(min_length=1, max_length=64)]
JobId = Annotated[str, Meta(min_length=1, max_length=64)]
NameText = Annotated[str, Meta(min_length=1, max_length=200)]
VariableName = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z")]
VariableValue = Annotated[str, Meta(max_length=32_768, pattern=_NO_NUL)]
Variables = Annotated[dict[VariableName, VariableValue], Meta(max_length=100)]
Size = Annotated[int, Meta(ge=1, le=1000)]
WaitMs = Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)]
ReadBytes = Annotated[int, Meta(ge=1, le=MAX_READ_BYTES)]

Host = Literal["sandbox", "gateway", "node"]
JobStatus = Literal["running", "completed", "failed", "timed_out", "killed", "lost"]
SignalName = Literal["HUP", "INT", "QUIT", "KILL", "TERM", "USR1", "USR2", "CONT", "STOP", "TSTP", "WINCH"]


class TerminalExecParams(Params, frozen=True):
    """``timeoutMs``: absent for what the gateway is configured with, 30 seconds by default.

    ``host``: where it runs: in the sandbox, on the gateway's machine without one (admins), or on the ``node`` of this
    name or id. ``sessionKey``: the conversation that it belongs to. The same ``idempotencyKey`` again is answered with
    what the first request came to, and runs nothing.
    """

    command: CommandText
    cwd: PathText | UnsetType = UNSET
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_EXEC_TIMEOUT_MS)] | UnsetType = UNSET
    session_key: NameText | UnsetType = UNSET
    host: Host | UnsetType = UNSET
    node: NameText | UnsetType = UNSET
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=512)] | UnsetType = UNSET
    raw: bool = False


class RawOutput(Result, kw_only=True):
    """What was written, with its control sequences."""

    stdout: str
    stderr: str


class TerminalExecResult(Result, kw_only=True):
    """How a command ended, and what it wrote, as text without control sequences.

    ``output`` is both outputs in the order in which they came. Each of the three has at most 30,000 characters and a
    line; of what is longer the middle is left out: ``truncated`` then, and ``omittedChars`` how much of ``output``.
    ``exitCode`` is null for one that a ``signal`` ended. ``overrun`` is the limit of the sandbox that it was ended for.
    ``sandbox`` is what it ran in: ``bubblewrap``, ``none``, ``node``, …
    """

    stdout: str
    stderr: str
    output: str
    exit_code: int | None
    signal: str | UnsetType = UNSET
    timed_out: bool
    overrun: str | UnsetType = UNSET
    duration_ms: NonNegativeInt
    truncated: bool
    omitted_chars: NonNegativeInt
    sandbox: str
    raw: RawOutput | UnsetType = UNSET


class TerminalExecBgParams(Params, frozen=True):
    """``timeoutMs``: when to kill it; absent for the most that can be given, a day."""

    command: CommandText
    cwd: PathText | UnsetType = UNSET
    title: TitleText | UnsetType = UNSET
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_JOB_TIMEOUT_MS)] | UnsetType = UNSET


class Job(Result, kw_only=True):
    """A command in the background.

    ``status``: ``completed`` with exit code 0, ``failed`` with another, by a signal or for a limit, ``killed`` by its
    person or with the gateway, ``lost`` if the gateway died while it ran. ``note`` says more of its end.
    ``outputBytes`` is all that it has written.
    """

    job_id: str
    command: str
    title: str | UnsetType = UNSET
    cwd: str
    status: JobStatus
    started_at: NonNegativeInt
    ended_at: NonNegativeInt | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    signal: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    sandbox: str
    output_bytes: NonNegativeInt


class JobResult(Result, kw_only=True):
    job: Job


class TerminalJobParams(Params, frozen=True):
    job_id: JobId


class TerminalJobListParams(Params, frozen=True):
    """``status``: absent for all."""

    limit: Annotated[int, Meta(ge=1, le=MAX_LISTED_JOBS)] = DEFAULT_LISTED_JOBS
    status: JobStatus | UnsetType = UNSET


class TerminalJobListResult(Result, kw_only=True):
    """Newest first."""

    jobs: list[Job]


class TerminalJobOutputParams(Params, frozen=True):
    """``waitMs``: how long to wait for output where there is none yet."""

    job_id: JobId
    cursor: NonNegativeInt = 0
    wait_ms: WaitMs = 0
    max_bytes: ReadBytes = DEFAULT_READ_BYTES


class TerminalOutput(Result, kw_only=True):
    """A piece of output. ``ended``: nothing comes after it."""

    data: str
    cursor: NonNegativeInt
    dropped: NonNegativeInt
    ended: bool
    exit_code: int | UnsetType = UNSET
    signal: str | UnsetType = UNSET


class TerminalCreateParams(Params, frozen=True):
    """``shell``: what to run, ``bash`` by default. ``command``: a line for it, with whose end the terminal ends."""

    shell: PathText | UnsetType = UNSET
    cols: Size = DEFAULT_COLS
    rows: Size = DEFAULT_ROWS
    cwd: PathText | UnsetType = UNSET
    env: Variables | UnsetType = UNSET
    title: TitleText | UnsetType = UNSET
    command: CommandText | UnsetType = UNSET


class TerminalSummary(Result, kw_only=True):
    """An interactive terminal. One that has ended stays for a while, so that its last output can be read."""

    terminal_id: str
    shell: str
    title: str | UnsetType = UNSET
    cols: int
    rows: int
    created_at: NonNegativeInt
    running: bool
    exit_code: int | UnsetType = UNSET
    signal: str | UnsetType = UNSET
    sandbox: str


class TerminalIdParams(Params, frozen=True):
    terminal_id: TerminalId


class TerminalWriteParams(Params, frozen=True):
    """Exactly one of ``data``, text, and ``dataBase64``, any bytes."""

    terminal_id: TerminalId
    data: Annotated[str, Meta(max_length=MAX_WRITE_CHARS)] | UnsetType = UNSET
    data_base64: Annotated[str, Meta(max_length=MAX_WRITE_CHARS * 4 // 3)] | UnsetType = UNSET


class TerminalReadParams(Params, frozen=True):
    """``cursor``: absent to begin with the oldest that is kept. ``waitMs``: how long to wait where there is nothing."""

    terminal_id: TerminalId
    cursor: NonNegativeInt | UnsetType = UNSET
    wait_ms: WaitMs = 0
    max_bytes: ReadBytes = DEFAULT_READ_BYTES


class TerminalResizeParams(Params, frozen=True):
    terminal_id: TerminalId
    cols: Size
    rows: Size


class TerminalSignalParams(Params, frozen=True):
    """``signal``: to the program in the foreground."""

    terminal_id: TerminalId
    signal: SignalName


class TerminalListParams(Params, frozen=True):
    pass


class TerminalListResult(Result, kw_only=True):
    terminals: list[TerminalSummary]


class TerminalSubscribeParams(Params, frozen=True):
    """``cursor``: where to go on; absent for a replay of what is kept, beginning with what sets the screen up again."""

    terminal_id: TerminalId
    cursor: NonNegativeInt | UnsetType = UNSET


class TerminalAnswer(Result, kw_only=True):
    """What became of a terminal that was told something: how it is now."""

    ok: bool
    terminal: TerminalSummary


class TerminalUnsubscribeResult(Result, kw_only=True):
    """``ok``: false where there was no subscription."""

    ok: bool


class TerminalOutputEvent(Result, kw_only=True):
    """``terminal.output``, to the connections that subscribed: what the terminal has written.

    ``cursor`` is behind ``data``. ``dropped``: so many bytes before it are kept no more.
    """

    terminal_id: str
    data: str
    cursor: NonNegativeInt
    dropped: NonNegativeInt | UnsetType = UNSET


class TerminalExitEvent(Result, kw_only=True):
    """``terminal.exit``, behind the last output: the program has ended, and with it the subscription."""

    terminal_id: str
    exit_code: int | None
    signal: str | None
