"""``config.get`` (OPENCLAW-V3 6.8): the configuration as it is in force and as the file says it, without secrets."""

import asyncio
import hashlib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skynet.config import Config, ConfigError, config_to_public, load_config
from skynet.gateway.dispatch import method
from skynet_memory.ids import Role
from skynet_protocol.config import REDACTED, ConfigGetParams, ConfigGetResult, ConfigIssue
from skynet_users.caller import Caller

_SECRET_KEY = re.compile(
    r"(?:token|password|passwd|passphrase|secret|api[_-]?key|private[_-]?key|credentials?|authorization|cookie)$",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
"""``${NAME}`` names a secret's variable and is none itself."""
_LOGIN_IN_URL = re.compile(r"(?<=://)[^/@\s\"']+(?=@)")
_KEY_SHAPED = re.compile(r"\b(?:sk|pk|ghp|gho|xox[abp])[-_][A-Za-z0-9_-]{8,}")
_ASSIGNMENT = re.compile(
    r"""(?P<key>[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')(?P<equals>[ \t]*=[ \t]*)"""
    r"""(?P<value>"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
)
_TELLTALE_CHARS = 6
"""A secret this long or longer does not occur in a text by chance."""


class ConfigMethods:
    """Only admins see the whole configuration; others see what a client needs to tell where it is."""

    def __init__(self, config: Config, *, env: Mapping[str, str] | None = None) -> None:
        self._config = config
        self._path = config.file_path
        self._env = os.environ if env is None else env

    @method("config.get")
    async def get(self, caller: Caller, params: ConfigGetParams) -> ConfigGetResult:
        """The file as it is now, and what is in force. ``hash`` is the SHA-256 of the file's text, secrets and all, so
        only admins get it: with it, guesses of a password could be tried out. Others get that of nothing.

        ``valid`` is about the file: a broken one is not in force until the gateway starts again, and does not start.
        """
        file = await asyncio.to_thread(_read, self._path, self._env)
        public = config_to_public(self._config, redacted=REDACTED)
        if caller.role is not Role.ADMIN:
            gateway = {name: public["gateway"][name] for name in ("host", "port")}
            public = {"gateway": gateway, "agent": {"name": public["agent"]["name"]}}
            file = _File(exists=file.exists, hash=_hash(b""), valid=file.valid)
        return ConfigGetResult(
            path=str(self._path),
            exists=file.exists,
            raw=file.raw,
            parsed=file.parsed,
            resolved=file.parsed or {},
            valid=file.valid,
            config=public if file.valid else {},
            hash=file.hash,
            issues=list(file.issues),
            warnings=[ConfigIssue(path="", message=text) for text in self._config.warnings]
            if caller.role is Role.ADMIN
            else [],
            legacy_issues=[],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """What may be shown of the file. ``raw`` is missing when its secrets cannot be taken out with certainty."""

    exists: bool
    hash: str
    valid: bool
    raw: str | None = None
    parsed: dict[str, Any] | None = None
    issues: tuple[ConfigIssue, ...] = ()


def _read(path: Path, env: Mapping[str, str]) -> _File:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return _File(exists=False, hash=_hash(b""), valid=True, parsed={})
    try:
        load_config(path, env=env)
        text = data.decode()
        tree = tomllib.loads(text)
    except ConfigError as exc:
        issues = tuple(ConfigIssue(path=problem.key, message=str(problem)) for problem in exc.problems)
        return _File(exists=True, hash=_hash(data), valid=False, issues=issues)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        return _File(exists=True, hash=_hash(data), valid=False, issues=(ConfigIssue(path="", message=str(exc)),))
    parsed = redact(tree)
    return _File(exists=True, hash=_hash(data), valid=True, raw=redact_text(text, tree), parsed=parsed)


def redact(tree: dict[str, Any]) -> dict[str, Any]:
    """The same tree without secrets: what is named like one, what looks like a key, logins in URLs, and wherever else
    one of these is repeated."""
    secrets = _telltales(tree)
    return {key: _redacted(value, key, secrets) for key, value in tree.items()}


def redact_text(text: str, tree: dict[str, Any]) -> str | None:
    """The TOML text without its secrets; ``None`` when that is not certain.

    It is certain when the result reads as exactly the redacted tree, and none of the secrets occurs in it any more.
    """
    secrets = _telltales(tree)
    redacted = _cleaned(_ASSIGNMENT.sub(_redact_assignment, text), secrets)
    try:
        if tomllib.loads(redacted) != redact(tree):
            return None
    except tomllib.TOMLDecodeError:
        return None
    return redacted


def _redact_assignment(match: re.Match[str]) -> str:
    value = match["value"][1:-1]
    if not _SECRET_KEY.search(match["key"].strip("\"'")) or not value or _REFERENCE.fullmatch(value):
        return match[0]
    return f'{match["key"]}{match["equals"]}"{REDACTED}"'


def _redacted(value: Any, key: str, secrets: Sequence[str]) -> Any:
    if isinstance(value, dict):
        if key == "headers":  # of a provider: any of them may be its key
            return dict.fromkeys(value, REDACTED)
        if key == "env":  # of commands: keys for what they use, by whatever name
            return {name: REDACTED if _is_value(item) else item for name, item in value.items()}
        return {name: _redacted(item, name, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item, key, secrets) for item in value]
    if not isinstance(value, str):
        return value
    return REDACTED if _is_secret(key, value) else _cleaned(value, secrets)


def _telltales(tree: dict[str, Any]) -> Sequence[str]:
    """The secrets that do not occur in a text by chance, the longest first."""
    found = {secret for secret in _secrets(tree) if len(secret) >= _TELLTALE_CHARS}
    return sorted(found, key=lambda secret: (-len(secret), secret))


def _secrets(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        if key == "env":
            yield from filter(_is_value, value.values())
        for name, item in value.items():
            yield from _secrets(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets(item, key)
    elif isinstance(value, str) and _is_secret(key, value):
        yield value


def _is_secret(key: str, value: str) -> bool:
    return _is_value(value) and _SECRET_KEY.search(key) is not None


def _is_value(value: object) -> bool:
    """A text that is there, and not the name of the variable that has it."""
    return isinstance(value, str) and bool(value) and _REFERENCE.fullmatch(value) is None


def _cleaned(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return _KEY_SHAPED.sub(REDACTED, _LOGIN_IN_URL.sub(REDACTED, text))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
