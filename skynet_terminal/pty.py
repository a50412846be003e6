"""One program under a pseudo-terminal: what it writes is kept and handed to viewers, what is typed is handed to it.

Popen and not ptyprocess: that one runs Python between fork and exec in a process with threads, and goes on as a second
gateway if the directory is gone; it leaks descriptors where there is no room for a process, sleeps where it closes, and
takes ten times as long on the loop.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from skynet_memory.ids import new_id
from skynet_terminal.errors import TerminalEnded, TerminalError
from skynet_terminal.modes import CLEARED
from skynet_terminal.pty_flow import INPUT_BYTES, LoopShare, Typing
from skynet_terminal.pty_session import kill_session, set_size, signal_session, start_under_terminal
from skynet_terminal.replay import Ring
from skynet_terminal.sandbox.base import Launch
from skynet_terminal.viewers import Chunk, Viewer, chunk_of, prefixed

__all__ = ["DEFAULT_COLS", "DEFAULT_ROWS", "HANGUP_S", "INPUT_BYTES", "LoopShare", "Terminal", "check_size"]

log = logging.getLogger(__name__)

DEFAULT_COLS = 220
DEFAULT_ROWS = 50
LARGEST_SIZE = 1000
MOST_WAIT_S = 30.0
TURN_BYTES = 32_768
"""The most that is read before others have their turn."""
FAR_BEHIND_BYTES = 65_536
"""A program waits while a viewer is this far behind, …"""
NEAR_BYTES = 32_768
"""… until it is no further behind than this, …"""
PATIENCE_S = 5.0
"""… but not longer than this: one dead phone does not stop a program for ever."""
DRAIN_S = 1.0
"""So long output is read after the end, should something that outlived the program hold the terminal open."""
HANGUP_S = 1.0
"""So long a program has to end after it was told that its terminal is gone."""
DEATH_S = 5.0
REPAINT_S = 0.5
"""So long a program has to begin drawing its screen anew."""
REPAINTS = 2
POLL_S = 0.02
SIGNALS = ("INT", "TERM", "KILL", "HUP", "QUIT", "TSTP", "CONT", "STOP", "WINCH", "USR1", "USR2")

_READ_BYTES = 16_384  # a terminal of Linux gives 4,095 at most
_TIOCSIG = 0x40045436  # Linux: have the terminal send a signal, as if the key were pressed
_OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)


def check_size(cols: int, rows: int) -> None:
    """
    Raises:
        ValueError: naming the one that no terminal has.
    """
    for name, size in (("cols", cols), ("rows", rows)):
        if not 1 <= size <= LARGEST_SIZE:
            raise ValueError(f"{name} is {size}, allowed are 1 to {LARGEST_SIZE}")


class Terminal:
    """A program and its terminal. Made by :class:`~skynet_terminal.terminals.Terminals`.

    It is started at once, by the thread of the running loop, and read from then on.

    Raises:
        StartFailed: the program cannot be started.
        ValueError: the size is none of a terminal.
    """

    def __init__(
        self,
        owner: str,
        launch: Launch,
        *,
        shell: str = "",
        title: str = "",
        sandbox: str = "",
        cols: int = DEFAULT_COLS,
        rows: int = DEFAULT_ROWS,
        share: LoopShare | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        check_size(cols, rows)
        self.id = new_id()
        self.owner = owner
        self.shell = shell
        self.title = title
        self.sandbox = sandbox
        self.cols = cols
        self.rows = rows
        self.created_at_ms = time.time_ns() // 1_000_000
        self.exit_code: int | None = None
        """Of a program that ended by itself."""
        self.signal: str | None = None
        """That ended the program: ``SIGKILL``."""
        self.ring = Ring()
        self.ended = asyncio.Event()
        self.ended_at_s: float | None = None
        self._launch = launch
        self._share = share or LoopShare()
        self._now_s = now_s
        self._loop = asyncio.get_running_loop()
        self._viewers: set[Viewer] = set()
        self._waiting: set[asyncio.Future[None]] = set()
        self._reading = False
        self._resting: asyncio.TimerHandle | None = None
        self._holding: asyncio.TimerHandle | None = None
        self._draining: asyncio.TimerHandle | None = None
        self._hung_up = False
        self._exited = False
        self._repainting = asyncio.Lock()
        self._pidfd = -1
        self._retrying: asyncio.TimerHandle | None = None
        self.used_at_s = now_s()
        """When something was typed, written or read last."""
        self._process, self._master = start_under_terminal(launch, cols, rows)
        self._typing = Typing(self._loop, self._master)
        self.pid = self._process.pid
        try:
            launch.started(self.pid)
            self._watch()
        except BaseException:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            os.close(self._master)
            raise
        self._update_reading()

    @property
    def running(self) -> bool:
        """Whether it may still write."""
        return not self.ended.is_set()

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def write(self, data: bytes) -> None:
        """Type ``data``. What the program does not read yet waits for it.

        Raises:
            TerminalEnded: nobody can read it.
            InputRefused: more than ``INPUT_BYTES`` would wait.
        """
        self._check_running()
        self._typing.write(data)
        self.used_at_s = self._now_s()

    async def read(self, cursor: int | None = None, wait_s: float = 0.0, most_bytes: int = TURN_BYTES) -> Chunk:
        """What was written from ``cursor`` on; waits for something if there is nothing.

        Without a cursor it is a replay: it begins with what puts a new terminal into the modes in force.

        Args:
            wait_s: no longer than this, and no longer than ``MOST_WAIT_S``.

        Raises:
            ValueError: so much was not written yet.
        """
        prefix = b""
        if cursor is None:
            await self.repaint()
            self.ring.begin_at_a_position()
            cursor, prefix = self.ring.start, self.ring.prefix()
        self.used_at_s = self._now_s()
        chunk = chunk_of(self.ring, cursor, most_bytes, ended=not self.running)
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(wait_s, 0.0), MOST_WAIT_S)):
                while not (chunk.text or chunk.dropped or chunk.ended):
                    await self.changed()
                    chunk = chunk_of(self.ring, cursor, most_bytes, ended=not self.running)
        return prefixed(chunk, prefix)

    def attach(self, cursor: int | None = None) -> Viewer:
        """Look at it: from ``cursor`` on, or beginning with what is kept, made so that a new terminal gets the screen.

        Raises:
            ValueError: so much was not written yet.
        """
        if cursor is not None:
            self.ring.since(cursor)
        viewer = Viewer(self, cursor)
        self._viewers.add(viewer)
        return viewer

    def detach(self, viewer: Viewer) -> None:
        """It looks no more. Idempotent."""
        if viewer in self._viewers:
            self._viewers.remove(viewer)
            viewer.detach()
            self.used_at_s = self._now_s()
            self.viewer_moved()
            self._wake()

    def viewer_moved(self) -> None:
        """A viewer has taken what it was given, or is gone."""
        for viewer in self._viewers:
            viewer.patient = viewer.patient or viewer.behind_bytes <= NEAR_BYTES
        if self._holding is not None and not self._behind(NEAR_BYTES):
            self._holding.cancel()
            self._holding = None
            self._update_reading()

    async def changed(self) -> None:
        """Return when it has written or ended, or a viewer is gone."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def resize(self, cols: int, rows: int) -> None:
        """
        Raises:
            TerminalEnded: it has no size any more.
            ValueError: naming the one that no terminal has.
        """
        check_size(cols, rows)
        self._check_running()
        self.cols, self.rows = cols, rows
        set_size(self._master, cols, rows)

    def send_signal(self, name: str) -> None:
        """Signal the program in the foreground; ``HUP`` all that have this terminal.

        ``INT``, ``QUIT`` and ``TSTP`` come from the terminal itself, as of a key: nobody can be out of their reach.

        Args:
            name: one of ``SIGNALS``.

        Raises:
            TerminalEnded: there is no program.
            TerminalError: the program is none that may be signalled.
            ValueError: the name is none of ``SIGNALS``.
        """
        if name not in SIGNALS:
            raise ValueError(f"signal is {name[:32]!r}, allowed are {', '.join(SIGNALS)}")
        self._check_running()
        number = signal.Signals["SIG" + name]
        if number in _OF_THE_TERMINAL:
            with suppress(OSError):
                fcntl.ioctl(self._master, _TIOCSIG, number)
                return
        try:
            if number == signal.SIGHUP:
                # A shell that leads it would tell the others, but in a sandbox it is not the first one of the session
                signal_session(self.pid, number)
            else:
                os.killpg(os.tcgetpgrp(self._master) or self.pid, number)
        except PermissionError as exc:
            raise TerminalError(f"the program in the foreground may not be sent SIG{name}") from exc
        except OSError:  # it has ended just now
            log.debug("nobody to signal in terminal %s", self.id)

    def kill(self) -> None:
        """End it and what it has in the foreground at once. Idempotent."""
        if self._exited:
            return
        self._launch.kill()
        with suppress(OSError):
            os.killpg(os.tcgetpgrp(self._master) or self.pid, signal.SIGKILL)
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)

    async def close(self, hangup_s: float = HANGUP_S) -> None:
        """End it: as if its window were closed, and by force after ``hangup_s``.

        Idempotent. Cancelled, it ends it by force.
        """
        try:
            if not self._exited and hangup_s > 0:
                for number in (signal.SIGHUP, signal.SIGCONT):  # what is stopped has to go on to hear it
                    signal_session(self.pid, number)
                with suppress(TimeoutError):
                    async with asyncio.timeout(hangup_s):
                        await self.ended.wait()
        finally:
            self.kill()
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(DEATH_S):
                        await self.ended.wait()
            finally:
                self._finish()

    async def repaint(self) -> None:
        """Have a full-screen program draw all of its screen, if what is kept of its output does not contain it.

        It is told of another width and then of the right one again, which full-screen programs answer with all of
        their screen. One that does not answer is waited for ``REPAINT_S`` at a time.
        """
        async with self._repainting:
            for _ in range(REPAINTS):
                if self._exited or not (self.running and self.ring.screen_lost):
                    break
                try:
                    set_size(self._master, self.cols - 1 or 2, self.rows)
                    await self._cleared()
                finally:
                    if self.running:
                        set_size(self._master, self.cols, self.rows)
                await self._cleared()

    async def _cleared(self) -> None:
        """Return when the program has cleared the screen from now on, or has had its time for it."""
        begin = self.ring.end
        with suppress(TimeoutError):
            async with asyncio.timeout(REPAINT_S):
                while self.running and not CLEARED.search(self.ring.since(begin)[0]):
                    await self.changed()

    def _check_running(self) -> None:
        if self._exited or self.ended.is_set():
            raise TerminalEnded("the program of this terminal has ended")

    # Output

    def _update_reading(self) -> None:
        """Read, unless the loop is the others' turn, a viewer is waited for, or nobody can write."""
        wanted = not (self._resting or self._holding or self._hung_up or self.ended.is_set())
        if wanted and not self._reading:
            self._loop.add_reader(self._master, self._on_readable)
        elif self._reading and not wanted:
            self._loop.remove_reader(self._master)
        self._reading = wanted

    def _on_readable(self) -> None:
        begin = self._loop.time()
        pieces, size = [], 0
        while size < TURN_BYTES:
            try:
                piece = os.read(self._master, min(_READ_BYTES, TURN_BYTES - size))
            except BlockingIOError:
                break
            except OSError as exc:
                if exc.errno != errno.EIO:  # that is: no program has it open
                    log.warning("terminal %s cannot be read: %s", self.id, exc)
                piece = b""
            if not piece:
                self._hung_up = True
                break
            pieces.append(piece)
            size += len(piece)
        if size:
            self.ring.feed(b"".join(pieces))
            self.used_at_s = self._now_s()
            self._wake()
            self._hold_if_behind()
        if size >= _READ_BYTES // 4 - 1:
            now = self._loop.time()
            self._resting = self._loop.call_later(self._share.rest_s(now, now - begin), self._on_rested)
        self._update_reading()
        if self._hung_up:
            self._on_hangup()

    def _on_rested(self) -> None:
        self._resting = None
        self._update_reading()

    def _on_hangup(self) -> None:
        if self._exited:
            self._finish()
        else:  # a program that has closed its terminal may open it again
            self._retrying = self._loop.call_later(POLL_S * 5, self._on_retry)

    def _on_retry(self) -> None:
        self._retrying = None
        self._hung_up = False
        self._update_reading()

    def _behind(self, most_bytes: int) -> list[Viewer]:
        return [viewer for viewer in self._viewers if viewer.patient and viewer.behind_bytes > most_bytes]

    def _hold_if_behind(self) -> None:
        if self._holding is None and self._behind(FAR_BEHIND_BYTES):
            self._holding = self._loop.call_later(PATIENCE_S, self._on_impatient)

    def _on_impatient(self) -> None:
        self._holding = None
        for viewer in self._behind(NEAR_BYTES):
            viewer.patient = False
            log.info("terminal %s waits no longer for a viewer that is %d bytes behind", self.id, viewer.behind_bytes)
        self._update_reading()

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    # The end

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or before 5.3
            self._poll()
        else:
            self._loop.add_reader(self._pidfd, self._on_exit)

    def _poll(self) -> None:
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            self._loop.call_later(POLL_S, self._poll)
        else:
            self._on_exit()

    def _on_exit(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        # Before the number of its session is free for others, which it is once the program was waited for.
        kill_session(self.pid)
        self._exited = True
        status = self._process.wait()
        if status < 0:
            with suppress(ValueError):
                self.signal = signal.Signals(-status).name
            self.signal = self.signal or f"SIG{-status}"
        else:
            self.exit_code = status
        if self._hung_up:
            self._finish()
        else:
            self._draining = self._loop.call_later(DRAIN_S, self._on_drained)

    def _on_drained(self) -> None:
        if self._holding is not None:  # what is left is not read as a viewer is waited for
            self._draining = self._loop.call_later(DRAIN_S, self._on_drained)
        else:
            self._finish()

    def _finish(self) -> None:
        """Nothing comes any more. Idempotent."""
        if self.ended.is_set():
            return
        self.ended.set()
        self.ended_at_s = self._now_s()
        for timer in (self._resting, self._holding, self._draining, self._retrying):
            if timer is not None:
                timer.cancel()
        self._resting = self._holding = self._draining = self._retrying = None
        self._update_reading()
        self._typing.close()
        os.close(self._master)
        self._master = -1
        self._wake()
