"""The tools that plugins are: a program is run for each call (SK-105)."""

import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from skynet.plugins import Plugin, Plugins
from skynet.plugins.running import VARIABLE_BYTES, PluginOverran, PluginRunner
from skynet_agent.cutting import cut_middle
from skynet_agent.messages import Json
from skynet_agent.tools import Tool, ToolContext, ToolFailed
from skynet_terminal.errors import SandboxUnavailable, StartFailed
from skynet_terminal.processes import Ended
from skynet_terminal.sandbox import PATH

log = logging.getLogger(__name__)

OUTPUT_CHARS = 30_000
"""What a model gets of one call; the middle is cut."""
INPUT = "SKYNET_INPUT"
USER = "SKYNET_USER"
INPUT_BYTES = VARIABLE_BYTES - len(f"{INPUT}=") - 1
"""The longest input that a variable holds; a longer one is on stdin."""


class PluginTools:
    """The tools of the plugins that there are.

    Args:
        folder_of: a person's own folder, or in a room the room's.
    """

    def __init__(self, plugins: Plugins, runner: PluginRunner, *, folder_of: Callable[[ToolContext], Path]) -> None:
        self._plugins = plugins
        self._runner = runner
        self._folder_of = folder_of
        self._made_of: Sequence[Plugin] = ()
        self._tools: Sequence[Tool] = ()

    async def tools(self) -> Sequence[Tool]:
        """The tools; the same object until a plugin changes, comes or goes."""
        plugins = await self._plugins.current()
        if plugins is not self._made_of:
            self._made_of = plugins
            self._tools = tuple(map(self._tool, plugins))
        return self._tools

    def _tool(self, plugin: Plugin) -> Tool:
        async def run(context: ToolContext, arguments: Mapping[str, Json]) -> str:
            return await self.run(plugin, context, arguments)

        return Tool(
            name=plugin.name,
            description=plugin.description,
            parameters=plugin.parameters,
            permission="plugins.run",
            run=run,
            timeout_s=plugin.timeout_s,
            needs_sandbox=True,
            plugin=plugin.id,
        )

    async def run(self, plugin: Plugin, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        if not self._plugins.is_current(plugin):
            raise ToolFailed(
                f"{plugin.name} has just been changed or removed; what it is now holds from the next message"
            )
        try:
            given = msgspec.json.encode(arguments)
        except UnicodeEncodeError as exc:
            raise ToolFailed(f"{plugin.name}: the input holds half a character (a lone surrogate)") from exc
        is_short = len(given) <= INPUT_BYTES
        env = {"PATH": PATH, "LANG": "C.UTF-8"}
        env |= {name: value.reveal() for name, value in plugin.env.items()}
        env[USER] = context.user_id
        if is_short:
            env[INPUT] = os.fsdecode(given)
        stdin = b"" if is_short else given
        try:
            ended = await self._runner.run(plugin, env=env, stdin=stdin, files=self._folder_of(context))
        except SandboxUnavailable as exc:
            log.warning("the plugin %s was not run: %s", plugin.id, exc)
            raise ToolFailed(f"{plugin.name} was not run, as there is no sandbox for it: {exc}") from exc
        except PluginOverran as exc:
            raise ToolFailed(f"{plugin.name} was ended: {exc}") from exc
        except (OSError, StartFailed) as exc:
            log.warning("the plugin %s could not be started: %s", plugin.id, exc)
            raise ToolFailed(f"{plugin.name} could not be started: {getattr(exc, 'strerror', None) or exc}") from exc
        return _result(plugin.name, ended)


def _result(name: str, ended: Ended) -> str:
    """What a program wrote.

    Raises:
        ToolFailed: it failed; with what it wrote to stderr, or to stdout if that is nothing.
    """
    if ended.returncode == 0:
        return cut_middle(ended.stdout.text(), OUTPUT_CHARS) or "(no output)"
    how = f"failed with exit code {ended.returncode}" if ended.returncode > 0 else f"was ended by {_signal(ended)}"
    said = ended.stderr.text() or ended.stdout.text()
    raise ToolFailed(cut_middle(f"{name} {how}{':' if said else ''}\n{said}".rstrip(), OUTPUT_CHARS))


def _signal(ended: Ended) -> str:
    try:
        return signal.Signals(-ended.returncode).name
    except ValueError:  # of the real-time ones
        return f"signal {-ended.returncode}"
