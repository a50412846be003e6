"""Read the configuration from its sources and report everything that is wrong with it at once."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args, get_origin

import msgspec

from skynet.config.checks import check_gateway, check_models, check_permissions
from skynet.config.children_checks import check_children
from skynet.config.environment import ENV_PREFIX, RESERVED_VARIABLES, EnvTarget, env_target
from skynet.config.known_providers import complete_providers
from skynet.config.problems import (
    CONTROL,
    ConfigError,
    KeyPath,
    ProblemKind,
    Report,
    allowed_values,
    shown,
    suggestion,
)
from skynet.config.schema import DEFAULT_FILE_NAME, Config, fields_of, is_table, plain_type
from skynet.config.terminal_checks import check_terminal
from skynet.config.toml_lines import toml_lines
from skynet_memory.secrets import Secret

_VARIABLE = re.compile(r"\$(?:(\$)\{|\{([^}]*)\})")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def find_home(env: Mapping[str, str]) -> Path:
    """The state directory: ``SKYNET_HOME``, else ``~/.skynet``."""
    return _absolute(env.get("SKYNET_HOME") or "~/.skynet", env, Path.cwd())


def find_config_file(path: Path | None, env: Mapping[str, str]) -> tuple[Path, bool]:
    """The file to read and whether it was asked for: an explicit path, ``SKYNET_CONFIG``, else ``skynet.toml`` in the
    state directory."""
    if path is not None:
        return _absolute(str(path), env, Path.cwd()), True
    if named := env.get("SKYNET_CONFIG"):
        return _absolute(named, env, Path.cwd()), True
    return find_home(env) / DEFAULT_FILE_NAME, False


def load_config(
    path: Path | None, *, env: Mapping[str, str], overrides: Mapping[str, object] = MappingProxyType({})
) -> Config:
    """Read the configuration.

    Args:
        path: the file to read; None for ``SKYNET_CONFIG`` or ``skynet.toml`` in the state directory, which may be
            missing.
        env: the environment: ``SKYNET_*`` overrides, ``${NAME}`` in the file, and the keys of well-known providers.
        overrides: command-line flags, by dotted key: ``{"gateway.port": 19001}``. They win.

    Raises:
        ConfigError: with all problems of all sources.
    """
    return _Loader(path, env, overrides).load()


@dataclass(frozen=True, slots=True)
class _Override:
    """A value that replaces the file's, and its source for messages."""

    path: KeyPath
    value: object
    origin: str


class _Refused:
    """Stands for a value that was refused; the problem is noted already."""


_REFUSED = _Refused()


class _Loader:
    def __init__(self, path: Path | None, env: Mapping[str, str], overrides: Mapping[str, object]) -> None:
        self._env = env
        self._overrides = overrides
        self._home = find_home(env)
        self._file, self._is_explicit = find_config_file(path, env)
        self._report = Report(self._file, self._home)

    def load(self) -> Config:
        text = self._read_file()
        tree = self._parse(text or "")
        for override in (*self._env_values(tree), *self._flag_values()):
            self._apply(tree, override)
        config = self._table(Config, tree, ())
        assert isinstance(config, Config)
        config = msgspec.structs.replace(config, home=self._home, file=None if text is None else self._file)
        config = complete_providers(_with_paths(config), tree, self._env, self._report)
        check_gateway(config.gateway, self._report)
        check_models(config, tree, self._report)
        check_permissions(config, self._report)
        check_children(config, self._report)
        check_terminal(config, self._report)
        if self._report.problems:
            raise ConfigError(self._report.problems)
        return msgspec.structs.replace(config, warnings=tuple(self._report.warnings))

    # -- sources

    def _read_file(self) -> str | None:
        """The file's text; None when there is no file, or none that can be read."""
        where = str(self._file)
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            if self._is_explicit:
                self._report.add(ProblemKind.UNREADABLE, "no such file", where=where)
            return None
        except OSError as exc:
            self._report.add(ProblemKind.UNREADABLE, f"cannot be read: {exc.strerror}", where=where)
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as exc:
            line = data.count(b"\n", 0, exc.start) + 1
            self._report.add(ProblemKind.BAD_TOML, "is not UTF-8 text", where=f"{where}:{line}")
            return None

    def _parse(self, text: str) -> dict[str, Any]:
        try:
            tree = tomllib.loads(text)
            self._report.lines = toml_lines(text)
        except tomllib.TOMLDecodeError as exc:
            message, line = _toml_problem(str(exc), text)
            where = f"{self._file}:{line}"
            self._report.add(ProblemKind.BAD_TOML, f"is not valid TOML: {message}", where=where)
            return {}
        except ValueError as exc:  # a number of thousands of digits
            self._report.add(ProblemKind.BAD_TOML, f"is not valid TOML: {exc}", where=f"{self._file}:1")
            return {}
        except RecursionError:
            self._report.add(ProblemKind.BAD_TOML, "is nested too deeply", where=f"{self._file}:1")
            return {}
        return tree

    def _env_values(self, tree: dict[str, Any]) -> list[_Override]:
        """The values of ``SKYNET_*`` variables, whole tables before their parts. An empty variable does not count."""
        found: list[_Override] = []
        for name in sorted(self._env):
            if not name.startswith(ENV_PREFIX) or name in RESERVED_VARIABLES or not self._env[name]:
                continue
            origin = f"environment variable {name}"
            target = env_target(name, tree)
            if isinstance(target, EnvTarget):
                value = self._env_value(self._env[name], target, origin)
                if value is not _REFUSED:
                    found.append(_Override(target.path, value, origin))
            elif target.is_ours:
                self._report.add(ProblemKind.UNKNOWN_KEY, target.hint, where=origin)
            else:  # it may belong to something else
                self._report.warnings.append(f"{origin}: {target.hint}; ignored")
        return sorted(found, key=lambda override: len(override.path))

    def _env_value(self, text: str, target: EnvTarget, origin: str) -> object:
        plain = plain_type(target.kind)
        allowed = allowed_values(target.kind)
        try:
            text.encode()
            if get_origin(plain) in (tuple, dict):
                allowed += ", as JSON"
                return msgspec.json.decode(text)
            if plain in (int, float, bool):
                return msgspec.convert(text, plain, strict=False)
        except UnicodeEncodeError:
            self._report.bad_value(target.path, "text that is not UTF-8", allowed, where=origin)
            return _REFUSED
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            self._report.bad_value(target.path, shown(text, target.kind), allowed, where=origin)
            return _REFUSED
        return text

    def _flag_values(self) -> Iterator[_Override]:
        for key, value in self._overrides.items():
            yield _Override(tuple(key.split(".")), value, "command line")

    def _apply(self, tree: dict[str, Any], override: _Override) -> None:
        """Put an overriding value into the tree. Where the file has no table to put it in, that error stands."""
        node: Any = tree
        for key in override.path[:-1]:
            node = node.setdefault(str(key), {})
            if not isinstance(node, dict):
                return
        node[str(override.path[-1])] = override.value
        self._report.origins[override.path] = override.origin

    # -- the walk over schema and values

    def _table(self, schema: type[msgspec.Struct], node: object, path: KeyPath) -> object:
        if not isinstance(node, dict):
            self._report.bad_value(path, shown(node, schema), "a table")
            return _REFUSED
        fields = fields_of(schema)
        values: dict[str, Any] = {}
        for key, item in node.items():
            if key in fields:
                values[key] = self._value(fields[key], item, (*path, key))
            else:
                what = f"unknown key{suggestion(key, fields)}"
                self._report.add(ProblemKind.UNKNOWN_KEY, what, path=(*path, key), allowed=", ".join(fields))
        required = [field.name for field in msgspec.structs.fields(schema) if field.required]
        for key in required:
            if key not in values:
                allowed = allowed_values(fields[key])
                self._report.add(ProblemKind.MISSING_VALUE, "is required", path=(*path, key), allowed=allowed)
        if any(values.get(key, _REFUSED) is _REFUSED for key in required):
            return _REFUSED
        return schema(**{key: value for key, value in values.items() if value is not _REFUSED})

    def _value(self, kind: Any, node: object, path: KeyPath) -> object:
        plain = plain_type(kind)
        if is_table(plain):
            return self._table(plain, node, path)
        if get_origin(plain) is dict:
            return self._map(kind, node, path)
        if get_origin(plain) is tuple:
            return self._list(kind, node, path)
        return self._leaf(kind, node, path)

    def _map(self, kind: Any, node: object, path: KeyPath) -> object:
        if not isinstance(node, dict):
            self._report.bad_value(path, shown(node, kind), allowed_values(kind))
            return _REFUSED
        _, item_kind = get_args(plain_type(kind))
        values = {key: self._value(item_kind, item, (*path, key)) for key, item in node.items()}
        return {key: value for key, value in values.items() if value is not _REFUSED}

    def _list(self, kind: Any, node: object, path: KeyPath) -> object:
        if not isinstance(node, list | tuple):
            self._report.bad_value(path, shown(node, kind), allowed_values(kind))
            return _REFUSED
        item_kind, _ = get_args(plain_type(kind))
        values = [self._value(item_kind, item, (*path, index)) for index, item in enumerate(node)]
        return tuple(value for value in values if value is not _REFUSED)

    def _leaf(self, kind: Any, node: object, path: KeyPath) -> object:
        value, allowed = node, allowed_values(kind)
        if isinstance(node, str):
            value = self._substituted(node, path)
            if value is _REFUSED:
                return _REFUSED
            if CONTROL.search(str(value)):
                self._report.bad_value(path, shown(node, kind), f"{allowed}, without control characters")
                return _REFUSED
        try:
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(value)
            return msgspec.convert(value, kind, dec_hook=self._decode)
        except (ValueError, OverflowError):  # msgspec's ValidationError is a ValueError
            self._report.bad_value(path, shown(node, kind), allowed)
            return _REFUSED

    def _decode(self, kind: type, value: object) -> object:
        if isinstance(value, str) and kind is Secret:
            return Secret(value)
        if isinstance(value, str) and kind is Path:
            return _absolute(value, self._env, self._home) if value else Path()
        raise ValueError(value)

    def _substituted(self, text: str, path: KeyPath) -> object:
        """``${NAME}`` replaced from the environment, and ``$${`` by ``${``. Only values of the file are treated so."""
        if "${" not in text or self._report.origin(path) is not None:
            return text
        unset: list[str] = []

        def replace(match: re.Match[str]) -> str:
            if match[1]:
                return "${"
            if not _VARIABLE_NAME.fullmatch(match[2]) or not self._env.get(match[2]):
                unset.append(match[2])
            return self._env.get(match[2], "")

        result = _VARIABLE.sub(replace, text)
        if not unset:
            return result
        if path[0] == "providers" and path[2:] == ("api_key",) and _VARIABLE_NAME.fullmatch(unset[0]):
            self._report.missing[str(path[1])] = f"the environment variable {unset[0]} is not set"
            return ""
        self._report.add(
            ProblemKind.UNSET_VARIABLE,
            f"the environment variable {unset[0]} is not set",
            path=path,
            seen=f"${{{unset[0]}}}",
            allowed="the name of a variable that is set, or $${ for a plain ${",
        )
        return _REFUSED


def _with_paths(config: Config) -> Config:
    """Empty paths replaced by their places under the state directory."""
    replace = msgspec.structs.replace
    agent, database, logging = config.agent, config.database, config.logging
    is_set = agent.workspace_dir != Path()
    if not is_set:
        agent = replace(agent, workspace_dir=config.home / "workspace")
    if database.path == Path():
        database = replace(database, path=config.home / "skynet.db")
    if logging.file == Path():
        logging = replace(logging, file=config.home / "logs" / "skynet.log")
    return replace(config, agent=agent, database=database, logging=logging, workspace_is_set=is_set)


def _absolute(path: str, env: Mapping[str, str], base: Path) -> Path:
    """With ``~`` replaced by the home directory of ``env``, relative to ``base``."""
    if path == "~" or path.startswith("~/"):
        user_home = env.get("HOME")
        path = str(Path(user_home) if user_home else Path.home()) + path[1:]
    return base / path


def _toml_problem(message: str, text: str) -> tuple[str, int]:
    """tomllib's message without its position, and the line."""
    match = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    if match is None:
        return message, 1
    line = int(match[1]) if match[1] else text.rstrip("\n").count("\n") + 1
    return message[: match.start()], line
