"""``execute_command`` and ``bash``: declared here, carried out by who holds the sandbox."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from skynet.places import Places
from skynet_agent.cutting import cut_middle
from skynet_agent.messages import Json
from skynet_agent.tools import Tool, ToolContext

OUTPUT_CHARS = 30_000
"""What a model gets of one command's output; the middle is cut."""
COMMAND_S = 30
LONGEST_COMMAND_S = 300
SHELL_S = 60
GRACE_S = 10.0
"""What the port has beyond a command's time to end it and to tell what there was."""
LONGEST_COMMAND = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """How a command ended. ``exit_code`` is None for one that did not end by itself.

    ``output`` is stdout and stderr as they came, without escape sequences. ``signal`` names what ended it (SIGKILL).
    """

    output: str
    exit_code: int | None = None
    timed_out: bool = False
    signal: str = ""


class CommandPort(Protocol):
    """Who runs commands: within the policy, in a sandbox, as the person of the context and nobody else.

    Both methods end the command with its children when they are cancelled, and when its time is up, with what output
    there is. They raise ``ToolFailed`` for a command that is refused, saying why, and where there is no sandbox.
    """

    async def execute(self, context: ToolContext, command: str, *, cwd: Path, timeout_s: float) -> CommandOutcome:
        """Run one command in a shell of its own, in the directory ``cwd``, which was in the person's folder."""

    async def shell(self, context: ToolContext, command: str, *, timeout_s: float) -> CommandOutcome:
        """Run one command in the shell of this person's session, which keeps its directory and variables.

        The shell belongs to the pair of ``context.user_id`` and ``context.session_key``, and no one else reaches it.
        """


class CommandTools:
    """The tools, if there is a port for them."""

    def __init__(self, port: CommandPort | None, places: Places) -> None:
        self._port = port
        self._places = places

    def tools(self) -> Sequence[Tool]:
        if self._port is None:
            return ()
        command: Json = {"type": "string", "minLength": 1, "maxLength": LONGEST_COMMAND}
        return (
            Tool(
                name="execute_command",
                description=(
                    "Run a command line in a fresh shell in the sandbox and wait for its end. Gives its output, stdout "
                    f"and stderr, at most {OUTPUT_CHARS} characters of it, and its exit code."
                ),
                parameters={
                    "type": "object",
                    "properties": {
                        "command": command | {"description": "The command line, for a POSIX shell."},
                        "timeout_s": {
                            "type": "integer",
                            "minimum": 1,
                            "maximum": LONGEST_COMMAND_S,
                            "description": f"Seconds until it is ended. Default {COMMAND_S}.",
                        },
                        "cwd": {
                            "type": "string",
                            "description": "The directory, relative to the person's own folder. Default: that folder.",
                        },
                    },
                    "required": ["command"],
                    "additionalProperties": False,
                },
                permission="commands.run",
                run=self.execute,
                timeout_s=LONGEST_COMMAND_S + GRACE_S,
                needs_sandbox=True,
            ),
            Tool(
                name="bash",
                description=(
                    "Run a command in this session's own bash, which keeps its directory, variables and functions from "
                    f"one call to the next. Each has {SHELL_S} seconds. Gives the output as execute_command does."
                ),
                parameters={
                    "type": "object",
                    "properties": {"command": command | {"description": "What is typed into the shell."}},
                    "required": ["command"],
                    "additionalProperties": False,
                },
                permission="commands.run",
                run=self.shell,
                timeout_s=SHELL_S + GRACE_S,
                needs_sandbox=True,
            ),
        )

    async def execute(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        assert self._port is not None
        timeout_s = float(arguments.get("timeout_s", COMMAND_S))
        cwd = await asyncio.to_thread(self._places.directory, context, arguments.get("cwd", ""))
        return told(await self._port.execute(context, arguments["command"], cwd=cwd, timeout_s=timeout_s), timeout_s)

    async def shell(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        assert self._port is not None
        return told(await self._port.shell(context, arguments["command"], timeout_s=SHELL_S), SHELL_S)


def told(outcome: CommandOutcome, timeout_s: float) -> str:
    """An outcome for a model: the output, then in brackets how it ended."""
    if outcome.timed_out:
        end = f"ended after {timeout_s:g} seconds, its time was up"
    elif outcome.exit_code is not None:
        end = "exit code 0" if outcome.exit_code == 0 else f"failed with exit code {outcome.exit_code}"
    else:
        end = f"ended by {outcome.signal or 'a signal'}"
    note = f"[{end}]"
    output = outcome.output.rstrip("\n")
    return f"{cut_middle(output, OUTPUT_CHARS - len(note) - 1)}\n{note}" if output.strip() else f"(no output)\n{note}"
