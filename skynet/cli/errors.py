"""How a command ends: its exit code, and the one error type that carries it."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes; documented in ``docs/cli.md``."""

    OK = 0
    FAILED = 1
    """The gateway, or the model, refused or failed what was asked."""
    USAGE = 2
    """The command line or the configuration is wrong; nothing was tried."""
    UNREACHABLE = 3
    """No gateway answers there, it went away, or it did not answer in time."""
    NOT_ALLOWED = 4
    """The gateway does not let this client in: token, password or pairing."""
    TIMED_OUT = 124
    """The command that was run took too long and was killed."""
    BLOCKED = 126
    """The command was not allowed to run."""
    INTERRUPTED = 130
    """Ctrl-C."""


class CliError(Exception):
    """A command cannot do what was asked.

    Args:
        message: what happened, for a person.
        exit_code: what the process ends with.
        code: a short name for scripts, shown by ``--json``.
        hint: what to do about it, a command if there is one.
    """

    def __init__(self, message: str, *, exit_code: Exit = Exit.FAILED, code: str = "failed", hint: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code
        self.hint = hint
