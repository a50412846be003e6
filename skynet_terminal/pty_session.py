"""A program's start under a pseudo-terminal, and the session that it leads."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios
from contextlib import suppress

from skynet_terminal.errors import StartFailed
from skynet_terminal.sandbox.base import Launch

# A session's leader gets the terminal that it opens to control it.
_CONTROLLING = 'exec "$@" 0<>"$0"'


def start_under_terminal(launch: Launch, cols: int, rows: int) -> tuple[subprocess.Popen[bytes], int]:
    """Its program, and the terminal's descriptor, which does not block and which nobody inherits."""
    master, slave = -1, -1
    try:
        master, slave = os.openpty()
        os.set_blocking(master, False)
        set_size(master, cols, rows)
        process = subprocess.Popen(  # noqa: S603 - whom to run is the caller's to decide
            ["/bin/sh", "-c", _CONTROLLING, os.ttyname(slave), *launch.argv],
            cwd=launch.cwd,
            env=dict(launch.env),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            pass_fds=tuple(launch.pass_fds),
            start_new_session=True,
            umask=0o077,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        if master >= 0:
            os.close(master)
        raise StartFailed(f"the terminal's program cannot be started: {exc}") from exc
    finally:
        if slave >= 0:
            os.close(slave)
    return process, master


def kill_session(leader: int) -> None:
    """Kill what a program that has ended has left in the background: not all of it hears that the terminal is gone."""
    with suppress(OSError):
        os.killpg(leader, signal.SIGKILL)
    signal_session(leader, signal.SIGKILL, but=leader)


def signal_session(leader: int, number: signal.Signals, *, but: int = 0) -> None:
    """Signal each process of the session that may be signalled."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - no path is needed
    except OSError:  # not Linux: then only those in the leader's group
        names = []
        with suppress(OSError):
            os.killpg(leader, number)
    for name in names:
        with suppress(ValueError, OSError):
            if (pid := int(name)) != but and os.getsid(pid) == leader:
                os.kill(pid, number)


def set_size(master: int, cols: int, rows: int) -> None:
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
