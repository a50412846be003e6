# ruff: noqa: N818 - the names say what happened
"""What goes wrong when commands are run, where callers act on it."""


class TerminalError(Exception):
    """Of all of them; ``str()`` is for the person and the model."""


class CommandBlocked(TerminalError):
    """The policy refuses the command, or nobody who may has allowed it."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{reason} (rule {rule})")
        self.rule = rule
        self.reason = reason


class SandboxUnavailable(TerminalError):
    """There is no sandbox that works, or not the one that is configured. Says what to do."""


class StartFailed(TerminalError):
    """The program could not be started: it is missing, or the machine has no room for it."""


class BadDirectory(TerminalError):
    """A command cannot be run where it was to be."""

    def __init__(self, cwd: str, reason: str) -> None:
        super().__init__(f"cwd {cwd[:200]!r}: {reason}")


class UnknownTerminal(TerminalError):
    """No terminal of this id, or not one of this person's."""

    def __init__(self, terminal_id: str) -> None:
        super().__init__(f"there is no terminal {terminal_id!r}")


class TerminalEnded(TerminalError):
    """The terminal's program has ended: nothing can be written to it."""


class InputRefused(TerminalError):
    """The terminal's program does not read: no more waits for it than a bound allows. Nothing of it was taken."""

    def __init__(self, waiting_bytes: int, most_bytes: int) -> None:
        super().__init__(f"the program does not read: {waiting_bytes} bytes wait for it, the most is {most_bytes}")


class UnknownJob(TerminalError):
    """No job of this id, or not one of this person's."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id!r}")


class TooMany(TerminalError):
    """A person's limit is reached."""

    def __init__(self, what: str, most: int) -> None:
        super().__init__(f"{most} {what} are open already, which is the most for one person: end one first")
        self.most = most
