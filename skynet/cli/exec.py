"""``skynet exec``: run a command where the assistant runs its own, as oneself."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from skynet.cli.client import RequestFailed, open_client
from skynet.cli.errors import CliError, Exit
from skynet.cli.output import is_terminal, print_json, print_notice, printable
from skynet.cli.questions import asking, of_command
from skynet.cli.target import NO_OPTIONS, Options, find_target

Directory = Annotated[
    str, Parameter(name="--cwd", help="Directory, in your folder or as commands see it.", show_default=False)
]


async def execute(
    *command: Annotated[
        str,
        Parameter(
            help="One word is a line for the shell; several are a program and its arguments, after -- if they are"
            " options of this command too.",
            allow_leading_hyphen=True,
        ),
    ],
    cwd: Directory = "",
    timeout: Annotated[
        float | None, Parameter(help="Seconds until it is killed.", validator=Number(gt=0, lte=300))
    ] = None,
    node: Annotated[str, Parameter(help="Run it on this node of yours, by name or id.", show_default=False)] = "",
    background: Annotated[
        bool, Parameter(name="--bg", help="Run it as a job, and print the job's id.", negative=(), show_default=False)
    ] = False,
    options: Options = NO_OPTIONS,
) -> int:
    """Run a command and end as it does: with its output and its exit code."""
    if background and node:
        raise CliError("jobs run on the gateway's machine, not on nodes", exit_code=Exit.USAGE, code="usage")
    params: dict[str, Any] = {"command": command_line(command)}
    if cwd:
        params["cwd"] = cwd
    if timeout is not None:
        params["timeoutMs"] = max(1, round(timeout * 1000))
    if node:
        params |= {"host": "node", "node": node}
    async with open_client(find_target(options)) as client, asking(client, of_command(params["command"]), joins=True):
        try:
            if background:
                job = (await client.request("terminal.exec_bg", params, timeout_s=None))["job"]
            else:  # somebody may have to allow it first: the gateway says when that has taken too long
                result = await client.request("terminal.exec", params | {"raw": True}, timeout_s=None)
        except RequestFailed as exc:
            raise refused(exc) from exc
    if background:
        if options.json:
            print_json({"job": job})
        else:
            print(job["jobId"])
        return Exit.OK
    if options.json:
        print_json(result)
    else:
        _print(result)
    return exit_code(result)


def command_line(words: Sequence[str]) -> str:
    """
    Raises:
        CliError: there are none, or they begin with an option that this command does not have.
    """
    if words and words[0].startswith("-"):
        option = words[0].partition("=")[0]
        raise CliError(
            f"unknown option: {option}",
            exit_code=Exit.USAGE,
            code="usage",
            hint="options come before the command, the command's own after its name; see: skynet exec --help",
        )
    line = words[0] if len(words) == 1 else shlex.join(words)
    if not line.strip():
        raise CliError("no command was given", exit_code=Exit.USAGE, code="usage", hint="skynet exec 'ls | wc -l'")
    return line


def refused(error: RequestFailed) -> CliError:
    """An error of the gateway, with the exit code for it."""
    if error.code == "COMMAND_BLOCKED":
        details = error.details if isinstance(error.details, dict) else {}
        rule = str(details.get("rule") or "")
        hint = f"rule {rule}" if rule and rule not in str(error) else ""
        return CliError(str(error), exit_code=Exit.BLOCKED, code=error.code, hint=hint)
    return error


def exit_code(ended: dict[str, Any]) -> int:
    """What a shell would say: the exit code, 128 and the signal's number, or 124 for what took too long."""
    if ended.get("timedOut"):
        return Exit.TIMED_OUT
    code = ended.get("exitCode")
    if isinstance(code, int):
        return code if 0 <= code <= 255 else Exit.FAILED
    return 128 + signal_number(str(ended.get("signal") or "KILL"))


def signal_number(name: str) -> int:
    """The number of ``TERM`` or ``SIGTERM``; that of KILL for a name that this machine does not know."""
    try:
        return signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"].value
    except KeyError:
        return signal.SIGKILL.value


def _print(result: dict[str, Any]) -> None:
    """To a person as text, to a pipe as it was written."""
    for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
        raw = (result.get("raw") or result)[name]
        stream.write(printable(result[name]) if is_terminal(stream) else raw)
        if result[name] and not result[name].endswith("\n") and is_terminal(stream):
            stream.write("\n")
        stream.flush()
    if result["truncated"]:
        print_notice(
            f"[{result['omittedChars']} characters were left out; for all of it: skynet exec --bg, skynet jobs output]"
        )
    if result["timedOut"]:
        print_notice(f"[killed after {result['durationMs'] / 1000:g} s; see --timeout, --bg]")
