"""``terminal.*``: commands, background jobs and interactive terminals, each person's own."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import TypeVar

from msgspec import UNSET, UnsetType

from skynet.gateway.command_desk import CommandDesk, ExecRequest, context_of
from skynet.gateway.dispatch import Waiting, method
from skynet.gateway.keys import Rooms, resolve_key
from skynet.gateway.once import Once
from skynet.gateway.terminal_streams import TerminalStreams
from skynet.gateway.terminal_view import exec_result, job_of, output_of, summary_of
from skynet_protocol.params import invalid_params
from skynet_protocol.terminal import (
    JobResult,
    TerminalAnswer,
    TerminalCreateParams,
    TerminalExecBgParams,
    TerminalExecParams,
    TerminalExecResult,
    TerminalIdParams,
    TerminalJobListParams,
    TerminalJobListResult,
    TerminalJobOutputParams,
    TerminalJobParams,
    TerminalListParams,
    TerminalListResult,
    TerminalOutput,
    TerminalReadParams,
    TerminalResizeParams,
    TerminalSignalParams,
    TerminalSubscribeParams,
    TerminalSummary,
    TerminalUnsubscribeResult,
    TerminalWriteParams,
)
from skynet_users.caller import Caller

T = TypeVar("T")


class TerminalMethods:
    """Thin: what may be run, and what holds it, is the desk's business.

    What one waits for is given up when the connection closes, and a command that was being run is killed; except those
    with an idempotency key, whose answer can be asked for again.
    """

    def __init__(
        self,
        desk: CommandDesk,
        streams: TerminalStreams,
        once: Once[TerminalExecResult],
        *,
        rooms: Rooms | None = None,
    ) -> None:
        self._desk = desk
        self._streams = streams
        self._once = once
        self._rooms = rooms

    # Commands

    @method("terminal.exec")
    def execute(self, caller: Caller, params: TerminalExecParams) -> Waiting:
        """Run a command to its end."""
        if params.idempotency_key is UNSET:
            return Waiting(self._execute(caller, params))
        begin = lambda: self._execute(caller, params)  # noqa: E731
        return Waiting(self._once.answer(caller.user_id, params.idempotency_key, begin))

    async def _execute(self, caller: Caller, params: TerminalExecParams) -> TerminalExecResult:
        session = None if params.session_key is UNSET else resolve_key(caller, params.session_key, self._rooms)
        request = ExecRequest(
            command=params.command,
            cwd=given(params.cwd, ""),
            timeout_s=None if params.timeout_ms is UNSET else params.timeout_ms / 1000,
            host=given(params.host, None),
            node=given(params.node, ""),
            by_hand=True,
        )
        try:
            outcome = await self._desk.execute(context_of(caller, session), request)
        except ValueError as exc:
            raise invalid_params("terminal.exec", f"at /timeoutMs: {exc}") from exc
        return await asyncio.to_thread(exec_result, outcome, raw=params.raw)

    # Jobs

    @method("terminal.exec_bg")
    def start_job(self, caller: Caller, params: TerminalExecBgParams) -> Waiting:
        """Begin a command that goes on without anybody who waits for it."""
        return Waiting(self._start_job(caller, params))

    async def _start_job(self, caller: Caller, params: TerminalExecBgParams) -> JobResult:
        job = await self._desk.start_job(
            context_of(caller),
            params.command,
            cwd=given(params.cwd, ""),
            title=given(params.title, ""),
            timeout_s=None if params.timeout_ms is UNSET else params.timeout_ms / 1000,
        )
        return JobResult(job=job_of(job))

    @method("terminal.job_status")
    async def job_status(self, caller: Caller, params: TerminalJobParams) -> JobResult:
        """How a job is."""
        return JobResult(job=job_of(await self._desk.jobs.status(caller.user_id, params.job_id)))

    @method("terminal.job_list")
    async def list_jobs(self, caller: Caller, params: TerminalJobListParams) -> TerminalJobListResult:
        """The person's jobs, newest first, those of earlier starts of the gateway among them."""
        status = None if params.status is UNSET else params.status
        jobs = await self._desk.jobs.list(caller.user_id, limit=params.limit, status=status)
        return TerminalJobListResult(jobs=[job_of(job) for job in jobs])

    @method("terminal.job_kill")
    async def kill_job(self, caller: Caller, params: TerminalJobParams) -> JobResult:
        """End a job with its whole process group. One that has ended stays as it is."""
        return JobResult(job=job_of(await self._desk.jobs.kill(caller.user_id, params.job_id)))

    @method("terminal.job_output")
    def job_output(self, caller: Caller, params: TerminalJobOutputParams) -> Waiting:
        """A piece of what a job has written."""
        return Waiting(self._job_output(caller, params))

    async def _job_output(self, caller: Caller, params: TerminalJobOutputParams) -> TerminalOutput:
        jobs = self._desk.jobs
        output = await jobs.output(
            caller.user_id, params.job_id, params.cursor, wait_s=params.wait_ms / 1000, most_bytes=params.max_bytes
        )
        job = await jobs.status(caller.user_id, params.job_id) if output.ended else None
        return output_of(output, job)

    # Terminals

    @method("terminal.create")
    def create(self, caller: Caller, params: TerminalCreateParams) -> Waiting:
        """Open a terminal with a shell in it."""
        return Waiting(self._create(caller, params))

    async def _create(self, caller: Caller, params: TerminalCreateParams) -> TerminalSummary:
        shell = {} if params.shell is UNSET else {"shell": params.shell}
        terminal = await self._desk.open_terminal(
            context_of(caller),
            **shell,
            command=given(params.command, ""),
            cols=params.cols,
            rows=params.rows,
            cwd=given(params.cwd, ""),
            env=given(params.env, {}),
            title=given(params.title, ""),
        )
        return summary_of(terminal)

    @method("terminal.write")
    def write(self, caller: Caller, params: TerminalWriteParams) -> TerminalAnswer:
        """Type something."""
        terminal = self._desk.terminals.get(caller.user_id, params.terminal_id)
        terminal.write(_typed(params))
        return TerminalAnswer(ok=True, terminal=summary_of(terminal))

    @method("terminal.read")
    def read(self, caller: Caller, params: TerminalReadParams) -> Waiting:
        """A piece of what a terminal has written; without a cursor all that is kept, beginning with what sets the
        screen up."""
        return Waiting(self._read(caller, params))

    async def _read(self, caller: Caller, params: TerminalReadParams) -> TerminalOutput:
        terminal = self._desk.terminals.get(caller.user_id, params.terminal_id)
        cursor = None if params.cursor is UNSET else params.cursor
        try:
            chunk = await terminal.read(cursor, params.wait_ms / 1000, params.max_bytes)
        except ValueError as exc:
            raise invalid_params("terminal.read", f"at /cursor: {exc}") from exc
        return output_of(chunk, terminal if chunk.ended else None)

    @method("terminal.resize")
    def resize(self, caller: Caller, params: TerminalResizeParams) -> TerminalAnswer:
        """Give a terminal another size; its programs are told (SIGWINCH)."""
        terminal = self._desk.terminals.get(caller.user_id, params.terminal_id)
        terminal.resize(params.cols, params.rows)
        return TerminalAnswer(ok=True, terminal=summary_of(terminal))

    @method("terminal.signal")
    def signal(self, caller: Caller, params: TerminalSignalParams) -> TerminalAnswer:
        """Send a signal to the program in the foreground."""
        terminal = self._desk.terminals.get(caller.user_id, params.terminal_id)
        terminal.send_signal(params.signal)
        return TerminalAnswer(ok=True, terminal=summary_of(terminal))

    @method("terminal.kill")
    async def kill(self, caller: Caller, params: TerminalIdParams) -> TerminalAnswer:
        """End a terminal with all that runs in it."""
        terminal = self._desk.terminals.get(caller.user_id, params.terminal_id)
        await terminal.close(0)
        return TerminalAnswer(ok=True, terminal=summary_of(terminal))

    @method("terminal.list")
    def list_terminals(self, caller: Caller, params: TerminalListParams) -> TerminalListResult:
        """The person's terminals, oldest first."""
        return TerminalListResult(terminals=[summary_of(each) for each in self._desk.terminals.list(caller.user_id)])

    @method("terminal.subscribe")
    def subscribe(self, caller: Caller, params: TerminalSubscribeParams) -> TerminalAnswer:
        """Have what the terminal writes sent to this connection, as ``terminal.output``, and its end as
        ``terminal.exit``; both come after this answer. Again: from there on, in the place of what was before."""
        terminal = self._desk.terminals.get(caller.user_id, params.terminal_id)
        cursor = None if params.cursor is UNSET else params.cursor
        if cursor is not None and cursor > terminal.ring.end:
            raise invalid_params("terminal.subscribe", f"at /cursor: must be <= {terminal.ring.end}")
        if caller.conn_id is None or not self._streams.start(caller.conn_id, terminal, cursor):
            raise invalid_params("terminal.subscribe", "only a connection can subscribe")
        return TerminalAnswer(ok=True, terminal=summary_of(terminal))

    @method("terminal.unsubscribe")
    def unsubscribe(self, caller: Caller, params: TerminalIdParams) -> TerminalUnsubscribeResult:
        """Have nothing more sent."""
        terminal = self._desk.terminals.get(caller.user_id, params.terminal_id)
        return TerminalUnsubscribeResult(
            ok=caller.conn_id is not None and self._streams.stop(caller.conn_id, terminal.id)
        )


def given(value: T | UnsetType, default: T) -> T:
    return default if isinstance(value, UnsetType) else value


def _typed(params: TerminalWriteParams) -> bytes:
    if (params.data is UNSET) == (params.data_base64 is UNSET):
        raise invalid_params("terminal.write", "must have exactly one of 'data' and 'dataBase64'")
    if not isinstance(params.data, UnsetType):
        return params.data.encode("utf-8", "replace")
    try:
        return b64decode(str(params.data_base64), validate=True)
    except ValueError as exc:
        raise invalid_params("terminal.write", "at /dataBase64: must be base64") from exc
