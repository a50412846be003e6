"""The command line: ``skynet``.

``skynet gateway run`` has to answer within 0.45 s of being started, and importing the command-line library takes up to
0.2 s. So its plain form is recognised here, by :func:`plain_run_options`; everything else, its help and its errors
included, is parsed by :mod:`skynet.cli.app`. A test holds both to the same meaning.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn, TypedDict


class RunOptions(TypedDict, total=False):
    """What ``skynet gateway run`` was given."""

    host: str
    port: int
    config: str
    verbose: bool


def main() -> NoReturn:
    """The ``skynet`` command."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code (see :class:`skynet.cli.errors.Exit`)."""
    if tuple(arguments[:2]) == ("gateway", "run"):
        options = plain_run_options(arguments[2:])
        if options is not None:
            from skynet.cli.gateway import run_gateway

            return run_gateway(options)
    from skynet.cli.app import run_app

    return run_app(arguments)


def plain_run_options(arguments: Sequence[str]) -> RunOptions | None:
    """The options of ``skynet gateway run`` where each is given once, in full and rightly; None for anything else."""
    options: RunOptions = {}
    waiting = list(reversed(arguments))
    while waiting:
        name, separator, value = waiting.pop().partition("=")
        if name in ("--verbose", "-v") and not separator and "verbose" not in options:
            options["verbose"] = True
            continue
        if not separator:
            value = waiting.pop() if waiting else ""
        if not value or value.startswith("-"):
            return None
        if name == "--host" and "host" not in options:
            options["host"] = value
        elif name == "--config" and "config" not in options:
            options["config"] = value
        elif name == "--port" and "port" not in options and value.isascii() and value.isdigit() and len(value) < 9:
            options["port"] = int(value)
        else:
            return None
    return options
