"""Child processes that never outlive a test, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

STOP_GRACE_S = 10.0
POLL_S = 0.05


def until(condition: Callable[[], T], timeout_s: float, what: Callable[[], str] | str) -> T:
    """The first true value of ``condition``. An AssertionError says ``what`` was awaited when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what if isinstance(what, str) else what()}")
        time.sleep(POLL_S)
    return value


def free_port() -> int:
    """A TCP port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(home: Path, **more: str) -> dict[str, str]:
    """What a child gets to know of this process: paths and language, no setting of any OpenClaw, Skynet or provider."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {"LANG": "C.UTF-8", **kept, "HOME": str(home), "TZ": "UTC", "NO_COLOR": "1", **more}


def end(process: subprocess.Popen[str], grace_s: float = STOP_GRACE_S) -> None:
    """End the process and its group: TERM, then KILL after ``grace_s``. One that has ended is left alone."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signum)
        except ProcessLookupError:
            break
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


class Child:
    """A started process. Its output, both streams, goes to the file ``log``."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Send ``signum`` to the process alone; the code it ends with."""
        self.process.send_signal(signum)
        return self.process.wait(STOP_GRACE_S)

    def wait_for(self, text: str, timeout_s: float) -> str:
        """Wait until the output has ``text``; the whole output then."""

        def condition() -> bool:
            return text in self.output or self.process.poll() is not None

        until(condition, timeout_s, lambda: f"{text!r} in the output\n{self.output}")
        assert text in self.output, f"ended with {self.process.poll()} before {text!r}\n{self.output}"
        return self.output


@contextmanager
def running(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> Iterator[Child]:
    """Run ``command`` in a process group of its own for as long as the block lasts."""
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        yield Child(process, log)
    finally:
        end(process)
