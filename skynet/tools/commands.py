"""``execute_command`` and ``bash``: commands that a model runs for its person, at the command desk."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from skynet.gateway.command_desk import CommandDesk, ExecOutcome, ExecRequest
from skynet_agent.messages import Json
from skynet_agent.tools import Tool, ToolContext, ToolFailed
from skynet_protocol.errors import RequestError
from skynet_terminal.capture import LONGEST_TEXT, Capture
from skynet_terminal.errors import TerminalError
from skynet_terminal.shells import ShellResult
from skynet_users.errors import Forbidden

COMMAND_S = 30
LONGEST_COMMAND_S = 300
SHELL_S = 60
GRACE_S = 3700.0
"""What a call has beyond its command's time: somebody may have to say yes first. The desk keeps the time."""
LONGEST_COMMAND = 65_536
LIVE_BYTES = 4000
"""What watching clients are shown of a running command."""
LONGEST_END = 3000
EARLIER_TEXT = 2000
"""Characters that are left for the words about a command's end, and what was written before it."""


class CommandTools:
    """The tools, if there is a desk for them."""

    def __init__(self, desk: CommandDesk | None) -> None:
        self._desk = desk

    def tools(self) -> Sequence[Tool]:
        if self._desk is None:
            return ()
        command: Json = {"type": "string", "minLength": 1, "maxLength": LONGEST_COMMAND}
        return (
            Tool(
                name="execute_command",
                description=(
                    "Run a command line in a fresh shell in the sandbox and wait for its end. Gives its output, stdout "
                    f"and stderr, at most {LONGEST_TEXT} characters of it, and its exit code."
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
                        "node": {
                            "type": "string",
                            "minLength": 1,
                            "description": (
                                "One of the person's own machines to run it on, by its name, instead of the sandbox. "
                                "Only if the person asks for that machine."
                            ),
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
        timeout_s = float(arguments.get("timeout_s", COMMAND_S))
        request = ExecRequest(
            command=arguments["command"],
            cwd=arguments.get("cwd", ""),
            timeout_s=timeout_s,
            node=arguments.get("node", ""),
            on_output=_live(context),
        )
        with _told():
            return told(await self._at_desk().execute(context, request), timeout_s)

    async def shell(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        with _told():
            return told(
                await self._at_desk().shell(context, arguments["command"], timeout_s=SHELL_S, on_output=_live(context)),
                SHELL_S,
            )

    def _at_desk(self) -> CommandDesk:
        assert self._desk is not None
        return self._desk


def told(outcome: ExecOutcome, timeout_s: float) -> str:
    """An outcome for a model: the output, then in brackets how it ended."""
    result = outcome.result
    if result.timed_out:
        end = f"ended after {timeout_s:g} seconds, its time was up"
    elif result.overrun:
        end = f"ended by the sandbox: {result.overrun}"
    elif result.exit_code is not None:
        end = "exit code 0" if result.exit_code == 0 else f"failed with exit code {result.exit_code}"
    else:
        end = f"ended by {result.signal or 'a signal'}"
    output = result.output.text(LONGEST_TEXT - LONGEST_END).rstrip("\n")
    ended = f"{output}\n[{end}]" if output.strip() else f"(no output)\n[{end}]"
    return ended if not isinstance(result, ShellResult) else _with_what_the_shell_says(ended, result)


def _with_what_the_shell_says(ended: str, result: ShellResult) -> str:
    earlier = result.earlier.text(EARLIER_TEXT).rstrip("\n")
    said = (
        f"[written in the background since the last command:]\n{earlier}\n[what this command wrote:]\n"
        if earlier
        else ""
    )
    return said + ended + (f"\n[{result.notice}]" if result.notice else "")


def _live(context: ToolContext) -> Callable[[str, bytes], None]:
    """Tells the clients that watch the newest of what a command has written."""
    newest = Capture(0, LIVE_BYTES)

    def tell(stream: str, data: bytes) -> None:
        newest.write(data)
        context.update(newest.captured().text(LONGEST_TEXT))

    return tell


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong, in words for a model."""
    try:
        yield
    except (TerminalError, Forbidden, RequestError, ValueError) as exc:
        raise ToolFailed(f"not run: {exc}") from exc
