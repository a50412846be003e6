"""Running commands in a sandbox, for tests."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from skynet_terminal.sandbox import HOME_INSIDE, Launch, Profile, Sandbox

TIMEOUT_S = 40


@dataclass(frozen=True, slots=True)
class Ended:
    status: int
    stdout: str
    stderr: str
    overrun: str = ""


class Tasks:
    """An owner of tasks, whose end ends them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> "Tasks":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, coro: Any, *, name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def start(launch: Launch, **more: Any) -> subprocess.Popen[bytes]:
    """As whoever starts commands does it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        launch.argv,
        env=dict(launch.env),
        cwd=launch.cwd,
        pass_fds=tuple(launch.pass_fds),
        **({"start_new_session": True} | pipes | more),
    )
    launch.started(process.pid)
    return process


@asynccontextmanager
async def started(
    sandbox: Sandbox, profile: Profile, argv: Sequence[str], **more: Any
) -> AsyncIterator[tuple[Launch, subprocess.Popen[bytes]]]:
    """While it runs; in the end nothing of it does."""
    launch = await sandbox.prepare(profile, argv)
    try:
        process = start(launch, **more)
        try:
            yield launch, process
        finally:
            launch.kill()
            await asyncio.to_thread(process.communicate)
    finally:
        await launch.release()


async def run(
    sandbox: Sandbox, profile: Profile, argv: Sequence[str], *, stdin: bytes = b"", cwd: PurePosixPath = HOME_INSIDE
) -> Ended:
    """To its end."""
    launch = await sandbox.prepare(profile, argv, cwd=cwd)
    try:
        process = start(launch)
        try:
            stdout, stderr = await asyncio.to_thread(process.communicate, stdin, timeout=TIMEOUT_S)
        except BaseException:
            launch.kill()
            process.communicate()
            raise
        return Ended(
            process.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"), launch.overrun
        )
    finally:
        await launch.release()


async def shell(sandbox: Sandbox, profile: Profile, script: str, **more: Any) -> Ended:
    return await run(sandbox, profile, ["bash", "-c", script], **more)


async def python(sandbox: Sandbox, profile: Profile, script: str, *arguments: str) -> Ended:
    """A script in the folder, run by the system's Python."""
    (profile.folder / "script.py").write_text(script)
    return await run(sandbox, profile, ["python3", "script.py", *arguments])


def folder_of(directory: Path, name: str = "ada") -> Path:
    folder = directory / "users" / name / "files"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
