"""Which setting a ``SKYNET_*`` variable is for.

``SKYNET_GATEWAY_AUTH_TOKEN``: section and keys joined by ``_``. ``__`` may stand between any two of them, and must
    stand round a name of the user's own: ``SKYNET_PROVIDERS__LAB__API_KEY``. Lists, and tables of such names, are given
    whole, as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import msgspec

from skynet.config.problems import KeyPath, suggestion
from skynet.config.schema import Config, fields_of, is_table, plain_type

ENV_PREFIX = "SKYNET_"
RESERVED_VARIABLES = frozenset({"SKYNET_CONFIG", "SKYNET_HOME"})


@dataclass(frozen=True, slots=True)
class EnvTarget:
    """The place a variable is for, and the type expected there."""

    path: KeyPath
    kind: Any


@dataclass(frozen=True, slots=True)
class NoTarget:
    """There is no such setting. ``is_ours`` when the name begins with one of our sections, so that it is surely a
    mistake."""

    hint: str
    is_ours: bool


def env_target(name: str, tree: Mapping[str, Any]) -> EnvTarget | NoTarget:
    """The setting that the variable ``name`` is for; ``tree`` is the file's content, whose own names are matched."""
    rest = name.removeprefix(ENV_PREFIX).lstrip("_")
    if fixed := _FIXED.get(re.sub("__+", "_", rest)):
        return fixed
    for target in _FIXED.values():
        match = re.fullmatch("_{1,2}".join(str(part).upper() for part in target.path) + "__(.+)", rest)
        if match is not None:
            return _inside(target, match[1].split("__"), tree)
    is_ours = any(rest.startswith(f"{section.upper()}_") for section in fields_of(Config))
    known = [ENV_PREFIX + key for key in _FIXED]
    return NoTarget(f"no setting has this name{suggestion(name, known)}", is_ours)


def table_at(tree: Mapping[str, Any], *path: str | int) -> Mapping[str, Any] | None:
    """The table at this path, empty if something else stands there, None if nothing does."""
    node: Any = tree
    for key in path:
        if not isinstance(node, Mapping) or key not in node:
            return None
        node = node[key]
    return node if isinstance(node, Mapping) else {}


def _inside(target: EnvTarget, parts: list[str], tree: Mapping[str, Any]) -> EnvTarget | NoTarget:
    """Follow the rest of a name into tables whose keys are free, or the fields of their entries."""
    path, kind = target.path, plain_type(target.kind)
    for at, part in enumerate(parts):
        if get_origin(kind) is dict:
            path, kind = (*path, _entry_name(part, table_at(tree, *path) or {})), plain_type(get_args(kind)[1])
        elif is_table(kind):
            fields = fields_of(kind)
            if part.lower() not in fields:
                allowed = ", ".join(field.upper() for field in fields)
                return NoTarget(f"no setting has this name{suggestion(part.lower(), fields)}; allowed: {allowed}", True)
            path, kind = (*path, part.lower()), fields[part.lower()]
        elif get_origin(plain_type(kind)) is tuple:
            whole = "__".join([_env_name(target.path), *parts[:at]])
            hint = f"one element of a list cannot be set alone: give the whole list as JSON in {ENV_PREFIX}{whole}"
            return NoTarget(hint, True)
        else:
            return NoTarget(f"no setting has this name: nothing is inside {'.'.join(map(str, path))}", True)
    if is_table(kind):
        return NoTarget(f"names a whole table: add __ and one of {', '.join(map(str.upper, fields_of(kind)))}", True)
    return EnvTarget(path, kind)


def _targets(schema: type[msgspec.Struct], path: tuple[str, ...] = ()) -> Iterator[EnvTarget]:
    """Every key with a fixed name; a table with free names (``providers``) counts as one key."""
    for name, kind in fields_of(schema).items():
        if is_table(plain_type(kind)):
            yield from _targets(plain_type(kind), (*path, name))
        else:
            yield EnvTarget((*path, name), kind)


def _env_name(path: KeyPath) -> str:
    return "_".join(map(str, path)).upper()


def _entry_name(name: str, existing: Mapping[str, Any]) -> str:
    """The free name meant: one of the file's, whose dashes and dots are underscores here, else the lower-case name."""
    for candidate in existing:
        if re.sub(r"[^A-Z0-9]", "_", candidate.upper()) == name.upper():
            return candidate
    return name.lower()


_FIXED = {_env_name(target.path): target for target in _targets(Config)}
