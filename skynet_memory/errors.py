# ruff: noqa: N818 - the names say what happened, as "except SessionNotFound" should read
"""What the storage raises for its callers to act on."""

from pathlib import Path

from skynet_memory.ids import RunId


class StorageUnavailable(Exception):
    """The disk is full, or another process holds the database: nothing was written, reads go on, later it may work."""

    def __init__(self, reason: str, *, retry_after_ms: int = 1000) -> None:
        super().__init__(f"storage unavailable: {reason}")
        self.reason = reason
        self.retry_after_ms = retry_after_ms


class DatabaseRefused(Exception):
    """The database file cannot be used as it is; the process should say so and not start."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class DatabaseInUse(DatabaseRefused):
    """Another process has the file open."""

    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(path, f"in use by process {pid if pid is not None else '(unknown)'}")
        self.pid = pid


class DatabaseTooNew(DatabaseRefused):
    """A newer version wrote the file; this one would damage it."""

    def __init__(self, path: Path, component: str, found: int, known: int) -> None:
        super().__init__(
            path,
            f"was written by a newer version: {component} is at schema {found}, this version knows schema {known}",
        )
        self.component = component
        self.found = found
        self.known = known


class DatabaseChanged(DatabaseRefused):
    """The file records another migration under a number than this version has: the two do not share a history."""

    def __init__(self, path: Path, component: str, number: int, recorded: str, known: str) -> None:
        super().__init__(path, f"{component} migration {number} was {recorded!r}, this version has {known!r}")


class SessionNotFound(LookupError):
    """No such session, or not one of this person's: the two are never told apart."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no session found: {key}")
        self.key = key


class LabelInUse(ValueError):
    """Another session of the same person has this label."""

    def __init__(self, label: str) -> None:
        super().__init__(f"label already in use: {label}")
        self.label = label


class RunNotOpen(LookupError):
    """The run was never begun, or is already closed; nothing was written."""

    def __init__(self, run_id: RunId) -> None:
        super().__init__(f"no open run: {run_id}")
        self.run_id = run_id


class MemoryNotFound(LookupError):
    """No such memory or topic, or not one of this person's: the two are never told apart."""

    def __init__(self, name: str) -> None:
        super().__init__(f"nothing is remembered as {name}")
        self.name = name


class MemoryRefused(ValueError):
    """It must not be remembered, or not so; ``reason`` says why and never repeats it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not remembered: {reason}")
        self.reason = reason


class MemoriesRefused(ValueError):
    """An import was refused as a whole. ``problems`` has the index, the field and what is wrong with it."""

    def __init__(self, problems: tuple[tuple[int, str, str], ...]) -> None:
        more = f", and {len(problems) - 10} more" if len(problems) > 10 else ""
        told = "; ".join(f"item {index}: {field} {problem}" for index, field, problem in problems[:10])
        super().__init__(f"nothing was imported: {told}{more}")
        self.problems = problems
