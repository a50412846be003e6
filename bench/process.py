"""Processes the bench starts: each in a group of its own, its output in a file, ended with its whole group."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

GRACE_S = 5.0


class StartError(Exception):
    """A process did not come up; ``str()`` has the end of its output."""


class Child:
    """A running command; leaving the context ends it and everything it started, by force after ``GRACE_S``."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self.started_at = time.monotonic()
            self._process = subprocess.Popen(
                argv,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def failure(self, what: str) -> StartError:
        return StartError(f"{what}: {' '.join(self._process.args)}\n{self.output()[-2000:]}")  # type: ignore[arg-type]

    def wait_for_output(self, pattern: str, timeout_s: float) -> re.Match[str]:
        """Return the first match of ``pattern`` in the output.

        Raises:
            StartError: the process ended, or the time is over.
        """
        deadline = time.monotonic() + timeout_s
        while (found := re.search(pattern, self.output())) is None:
            if self.ended:
                raise self.failure("ended at once")
            if time.monotonic() > deadline:
                raise self.failure(f"said nothing like {pattern!r} within {timeout_s} s")
            time.sleep(0.01)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for signum in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, signum)
            except ProcessLookupError:
                break
            try:
                self._process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                continue
            if not _group_lives(self._process.pid):
                break
        self._process.wait()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def free_port() -> int:
    """Return a loopback port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def first_answer_s(child: Child, port: int, path: str, timeout_s: float) -> float:
    """Return the time from the start of ``child`` to the whole head of its first 200 answer to ``GET path``.

    A refused connection is tried again after 2 ms, which is the resolution of the result.

    Raises:
        StartError: the process ended, or the time is over.
    """
    deadline = child.started_at + timeout_s
    question = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=max(0.01, deadline - time.monotonic())) as sock:
                sock.sendall(question)
                head = b""
                while b"\r\n\r\n" not in head and (data := sock.recv(4096)):
                    head += data
        except OSError:
            head = b""
        if re.match(rb"HTTP/1\.[01] 200 ", head):
            return time.monotonic() - child.started_at
        if child.ended:
            raise child.failure("ended before it answered")
        time.sleep(0.002)
    raise child.failure(f"did not answer GET {path} within {timeout_s} s")
