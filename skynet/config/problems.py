"""What can be wrong with a configuration, and how it is said."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from skynet.config.schema import AuthConfig, ProviderConfig, is_table, plain_type
from skynet_memory.secrets import Secret

KeyPath = tuple[str | int, ...]
"""Where a value stands: keys and array indexes from the root."""

CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ProblemKind(StrEnum):
    """What sort of problem; the ``unsafe-…`` ones name why a listener that others can reach is refused (SK-012)."""

    UNREADABLE = "unreadable"
    BAD_TOML = "bad-toml"
    UNKNOWN_KEY = "unknown-key"
    BAD_VALUE = "bad-value"
    MISSING_VALUE = "missing-value"
    UNSET_VARIABLE = "unset-variable"
    UNKNOWN_REFERENCE = "unknown-reference"
    UNSAFE_NO_TOKEN = "unsafe-no-token"  # noqa: S105
    UNSAFE_PLACEHOLDER = "unsafe-placeholder-token"
    UNSAFE_NO_AUTH = "unsafe-no-auth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong. ``seen`` never shows a secret: it is ``***`` for one."""

    kind: ProblemKind
    where: str
    """``FILE:LINE``, ``environment variable NAME`` or ``command line``."""
    key: str
    """Dotted, or "" when the whole file is meant."""
    seen: str
    """What was found; "" when nothing was."""
    message: str
    allowed: str
    """What would be accepted; "" when the message says it."""

    def __str__(self) -> str:
        parts = [self.where, *([self.key] if self.key else []), self.message]
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        return ": ".join(parts) + allowed


class ConfigError(Exception):
    """The configuration cannot be used; ``problems`` has every reason found, in the order of the sources."""

    def __init__(self, problems: Collection[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = "the configuration has a problem:" if count == 1 else f"the configuration has {count} problems:"
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))


_NOT_YET = {"gateway.auth.mode": ("trusted-proxy", "tailscale")}


class Report:
    """Collects problems and warnings, and knows where each value comes from.

    Args:
        file: the file that was read or should have been.
        home: where a stored gateway token would be.
    """

    def __init__(self, file: Path, home: Path) -> None:
        self.file = file
        self.home = home
        self.lines: dict[KeyPath, int] = {}
        self.origins: dict[KeyPath, str] = {}
        """The source of the values that do not come from the file."""
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.missing: dict[str, str] = {}
        """Provider → why it is off: a variable that should hold its key or address does not."""

    def add(
        self, kind: ProblemKind, message: str, *, path: KeyPath = (), where: str = "", seen: str = "", allowed: str = ""
    ) -> None:
        """Note a problem of the value at ``path``, or of the source ``where``."""
        self.problems.append(
            Problem(
                kind=kind,
                where=where or self.where(path),
                key=dotted(path),
                seen=seen,
                message=message,
                allowed=allowed,
            )
        )

    def bad_value(self, path: KeyPath, seen: str, allowed: str, *, where: str = "") -> None:
        """Note that ``seen`` stands where only ``allowed`` may."""
        is_planned = seen.strip('"') in _NOT_YET.get(dotted(path), ())
        message = f"{seen} is {'not available in this version' if is_planned else 'not allowed'}"
        self.add(ProblemKind.BAD_VALUE, message, path=path, where=where, seen=seen, allowed=allowed)

    def has_problem(self, path: KeyPath) -> bool:
        """Whether this value, or one inside it, was found wrong."""
        key = dotted(path)
        return any(problem.key == key or problem.key.startswith((f"{key}.", f"{key}[")) for problem in self.problems)

    def origin(self, path: KeyPath) -> str | None:
        """The source of the value, None when it is the file."""
        return next((self.origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.origins), None)

    def where(self, path: KeyPath) -> str:
        """The source of the value for a message: a variable, the command line, or the line of the file."""
        if origin := self.origin(path):
            return origin
        line = next((self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), None)
        return f"{self.file}:{line}" if line else "configuration"


def dotted(path: KeyPath) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            quoted = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else '"' + part.replace('"', '\\"') + '"'
            text += f".{quoted}" if text else quoted
    return text


def shown(value: object, kind: Any) -> str:
    """A value for an error message; ``***`` where a secret is expected, or may be inside."""
    plain = plain_type(kind)
    if plain in (Secret, AuthConfig, ProviderConfig):
        return "***"
    if isinstance(value, str) and (is_table(plain) or get_origin(plain) is dict):
        return "***"  # a secret that was put a level too high
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return quoted(value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def quoted(text: str) -> str:
    """A text for an error message, on one line and not too long."""
    text = CONTROL.sub("?", text)
    return f'"{text}"' if len(text) <= 60 else f'"{text[:57]}…"'


def allowed_values(kind: Any) -> str:
    """A type and its limits in words."""
    if get_origin(kind) in (Union, UnionType):  # or nothing at all
        return allowed_values(next(item for item in get_args(kind) if item is not type(None)))
    limits = next((item for item in get_args(kind) if isinstance(item, msgspec.Meta)), msgspec.Meta())
    plain = plain_type(kind)
    if get_origin(plain) is Literal:
        return ", ".join(f'"{value}"' for value in get_args(plain))
    if get_origin(plain) is tuple:
        return f"a list of: {allowed_values(get_args(plain)[0])}"
    if get_origin(plain) is dict or is_table(plain):
        return "a table"
    words = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}.get(plain, "text")
    low, high = limits.ge if limits.ge is not None else limits.gt, limits.le
    if low is not None and high is not None:
        return f"{words} {'from' if limits.gt is None else 'above'} {low} to {high}"
    if limits.max_length is not None:
        return f"{words} of {limits.min_length or 0} to {limits.max_length} characters"
    return words


def suggestion(name: str, known: Collection[str]) -> str:
    import difflib  # only for an error

    close = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""
