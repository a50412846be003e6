"""Running the program of a plugin: in the sandbox of commands, with what its ``tool.toml`` asks for and no more."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from skynet.plugins.folders import Plugin
from skynet_terminal.processes import OUTPUT_BYTES, Ended, Output, run_program, running
from skynet_terminal.sandbox import HOME_INSIDE, Limits, Mount, Profile, Sandbox

PLUGIN = PurePosixPath("/plugin")
"""A plugin's folder, as its program sees it in the sandbox."""
VARIABLE_BYTES = 128 * 1024
"""The longest variable with its name, ``=`` and NUL (MAX_ARG_STRLEN of Linux, execve(2))."""

# Variables that commands have and plugins do not, unless a plugin names them.
_OF_COMMANDS = ("TERM", "USER", "LOGNAME", "SHELL")


class PluginOverran(Exception):  # noqa: N818
    """It was ended for a limit of the sandbox; ``str()`` names it."""


class PluginRunner:
    """
    Args:
        sandbox: the one of commands. It raises ``SandboxUnavailable`` where none works: then no plugin runs. One that
            is ``none`` has to be configured; then they run as the gateway's own user.
        nothing: an empty directory, which plugins that ask for no files see as :data:`HOME_INSIDE`. It is made.
    """

    def __init__(self, sandbox: Callable[[], Awaitable[Sandbox]], *, nothing: Path, limits: Limits) -> None:
        self._sandbox = sandbox
        self._nothing = nothing
        self._limits = limits

    async def run(self, plugin: Plugin, *, env: Mapping[str, str], stdin: bytes, files: Path) -> Ended:
        """Run it to its end; cancelling kills all of it.

        Args:
            env: its variables. ``HOME`` is its folder if it has none.
            files: the folder of whoever asks. It is made if the plugin asks for it.

        Raises:
            SandboxUnavailable: there is no sandbox.
            OSError, StartFailed: it cannot be started.
            PluginOverran: it used more than it may.
        """
        sandbox = await self._sandbox()
        if sandbox.name == "none":
            return await self._run_unconfined(plugin, env, stdin)
        if any(len(os.fsencode(f"{name}={value}")) >= VARIABLE_BYTES for name, value in env.items()):
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        profile = await asyncio.to_thread(self._profile, plugin, {"HOME": str(PLUGIN), **env}, files)
        unset = " ".join(name for name in _OF_COMMANDS if name not in env)
        script = f'unset {unset}; exec "$@"' if unset else 'exec "$@"'
        argv = ["/bin/sh", "-c", script, plugin.name, *_as_seen(plugin)]
        launch = await sandbox.prepare(profile, argv, cwd=PLUGIN)
        stdout, stderr = _Beginning(), _Beginning()
        async with running(launch, stdin=stdin, on_stdout=stdout.write, on_stderr=stderr.write) as program:
            await program.ended.wait()
            await program.drained()
            returncode = _unwrapped(program.returncode)
            overrun = launch.overrun
        if overrun:
            raise PluginOverran(overrun)
        return Ended(returncode, stdout.output(), stderr.output())

    async def _run_unconfined(self, plugin: Plugin, env: Mapping[str, str], stdin: bytes) -> Ended:
        env = {"HOME": str(plugin.folder), **env}
        return await run_program(plugin.command, name=plugin.name, cwd=plugin.folder, env=env, stdin=stdin)

    def _profile(self, plugin: Plugin, env: Mapping[str, str], files: Path) -> Profile:
        self._nothing.mkdir(mode=0o700, parents=True, exist_ok=True)
        mounts = [Mount(source=plugin.folder, target=PLUGIN)]
        if plugin.files != "none":
            files.mkdir(mode=0o700, parents=True, exist_ok=True)
        if plugin.files != "write":
            # Over the folder of the profile, which is there to be written.
            mounts.append(Mount(source=files if plugin.files == "read" else self._nothing, target=HOME_INSIDE))
        return Profile(
            folder=files if plugin.files == "write" else self._nothing,
            mounts=tuple(mounts),
            env=env,
            hosts=plugin.hosts,
            limits=self._limits,
        )


class _Beginning:
    """What comes first of an output, and how much it was."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._size = 0

    def write(self, data: bytes) -> None:
        self._size += len(data)
        self._data += data[: OUTPUT_BYTES - len(self._data)]

    def output(self) -> Output:
        return Output(bytes(self._data), self._size)


def _as_seen(plugin: Plugin) -> Sequence[str]:
    """Its command, with the places in its folder under the name that they have in the sandbox."""

    def seen(word: str) -> str:
        path = PurePosixPath(word)
        return str(PLUGIN / path.relative_to(plugin.folder)) if path.is_relative_to(plugin.folder) else word

    return [seen(word) for word in plugin.command]


def _unwrapped(returncode: int) -> int:
    """Sandboxes say 128 + n for a signal that ended what they ran. Exit codes up to 129 are programs' own."""
    return 128 - returncode if 128 + signal.SIGHUP < returncode < 128 + signal.NSIG else returncode
