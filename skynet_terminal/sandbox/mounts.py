"""What of the machine may be mounted for commands: directories that are configured, never those with secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Protocol

from skynet_terminal.sandbox.base import HOME_INSIDE, Mount

BLOCKED_NAMES = (
    ".aws",
    ".azure",
    ".bash_history",
    ".boto",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".config/rclone",
    ".docker",
    ".env",
    ".env.*",
    ".envrc",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".mozilla",
    ".mysql_history",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".psql_history",
    ".pypirc",
    ".python_history",
    ".sh_history",
    ".skynet",
    ".ssh",
    ".terraform.d",
    ".vault-token",
    ".zsh_history",
    "*.jks",
    "*.kdbx",
    "*.key",
    "*.keystore",
    "*.p12",
    "*.pem",
    "*.pfx",
    "*.ppk",
    "containerd.sock",
    "credentials",
    "credentials.*",
    "crio.sock",
    "docker.sock",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "id_rsa*",
    "podman.sock",
    "secrets.*",
)
"""Names of files and directories that hold secrets, in small letters (BA-184, BA-212): patterns for each part of a
path, or for two parts after each other."""
EXAMPLES = (".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults", "*.pub")
"""Of these names, those without any."""

_SYSTEM = ("/boot", "/dev", "/etc", "/proc", "/root", "/run", "/sys", "/var/lib/docker", "/var/run")
"""Neither these nor what is in them can be a source."""
_TOO_WIDE = ("/", "/home", "/media", "/mnt", "/opt", "/srv", "/tmp", "/usr", "/var", "/var/lib", "/var/log")  # noqa: S108
"""These cannot, but what is in them can."""
_NO_TARGETS = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/root",
    "/run",
    "/sbin",
)
_NO_TARGETS_EITHER = ("/sys", "/tmp", "/usr", "/var", str(HOME_INSIDE))  # noqa: S108
_MOST_ENTRIES = 20_000
_DEEPEST = 4
_LIBRARY = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", "site-packages", "target"})
"""Directories that are not looked into for blocked names: other people's code, with test keys."""


class MountSettings(Protocol):
    """One mount as it is configured."""

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def mode(self) -> str: ...


class MountRefused(ValueError):  # noqa: N818 - the name says what happened
    """A mount of the configuration cannot be. ``str()`` begins with its key."""


def check_mounts(
    settings: Sequence[MountSettings], *, hidden: Iterable[Path] = (), key: str = "terminal.mounts"
) -> tuple[Mount, ...]:
    """The mounts of the configuration, if all of them may be.

    Args:
        hidden: the gateway's own directories; neither they nor what they are in can be mounted.
        key: of the list, for messages.

    Raises:
        MountRefused: one may not, or its source does not exist.
    """
    mine = [path.resolve() for path in hidden]
    mounts: list[Mount] = []
    for index, each in enumerate(settings):
        name = f"{key}[{index}]"
        if each.mode not in ("ro", "rw"):
            raise MountRefused(f"{name}.mode: {each.mode!r} is neither ro nor rw")
        source = _source(f"{name}.source", each.source, mine)
        target = _target(f"{name}.target", each.target or f"/mnt/{source.name}")
        if any(target.is_relative_to(other.target) or other.target.is_relative_to(target) for other in mounts):
            raise MountRefused(f"{name}.target: {target} is in another mount's, or the other way round")
        for other in mounts:
            # What commands may write in one could be made a link to anywhere, where the other begins.
            if (other.writable and source.is_relative_to(other.source)) or (
                each.mode == "rw" and other.source.is_relative_to(source)
            ):
                raise MountRefused(f"{name}.source: {source} and {other.source} are one in the other, and one is rw")
        mounts.append(Mount(source=source, target=target, writable=each.mode == "rw"))
    return tuple(mounts)


def is_blocked(path: PurePosixPath) -> bool:
    """Whether one of its parts is a name that holds secrets, in whatever case."""
    parts = [part.casefold() for part in path.parts]
    pairs = [f"{first}/{second}" for first, second in pairwise(parts)]
    return any(
        fnmatchcase(each, pattern) and not any(fnmatchcase(each, example) for example in EXAMPLES)
        for each in (*parts, *pairs)
        for pattern in BLOCKED_NAMES
    )


def blocked_within(source: Path) -> list[Path]:
    """What of a mounted directory commands must not see: blocked names in it and the directories below, ``_DEEPEST``
    levels deep. Not in those with code of others, nor beyond ``_MOST_ENTRIES`` entries: it is looked at for each
    command. Links are left out, as what they lead to is either mounted too, and found there, or not to be seen."""
    found: list[Path] = []
    directories = [(str(source), 0)]
    entries = 0
    for directory, depth in directories:  # it grows on the way, so what is on top comes first
        try:
            with os.scandir(directory) as scan:
                for entry in scan:
                    entries += 1
                    if _BLOCKED.fullmatch(entry.name.casefold()) and not _EXAMPLE.fullmatch(entry.name.casefold()):
                        if not entry.is_symlink():
                            found.append(Path(entry.path))
                    elif entry.is_dir(follow_symlinks=False):
                        if _is_pair(directory, entry.name):
                            found.append(Path(entry.path))
                        elif depth < _DEEPEST and entry.name not in _LIBRARY:
                            directories.append((entry.path, depth + 1))
        except OSError:
            continue
        if entries > _MOST_ENTRIES:
            break
    return found


def _regex(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(pattern).replace(r"\*", ".*") for pattern in patterns), re.DOTALL)


_BLOCKED = _regex(name for name in BLOCKED_NAMES if "/" not in name)
_EXAMPLE = _regex(EXAMPLES)
_PAIRS = frozenset(name for name in BLOCKED_NAMES if "/" in name)


def _is_pair(directory: str, name: str) -> bool:
    return f"{PurePosixPath(directory).name}/{name}".casefold() in _PAIRS


def _source(key: str, text: str, mine: Sequence[Path]) -> Path:
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise MountRefused(f"{key}: {text} is not absolute")
    try:
        source = path.resolve(strict=True)
    except (OSError, RuntimeError) as exc:
        raise MountRefused(f"{key}: {text} cannot be found: {exc}") from exc
    # Both as it is named and where its links lead to.
    for each in dict.fromkeys((PurePosixPath(os.path.normpath(path)), PurePosixPath(source))):
        if is_blocked(each):
            raise MountRefused(f"{key}: {each} has a name that is always blocked, as secrets are kept under it")
        if str(each) in _TOO_WIDE:
            raise MountRefused(f"{key}: {each} is too much of the machine: name a directory in it")
        if any(each.is_relative_to(system) for system in _SYSTEM):
            raise MountRefused(f"{key}: {each} belongs to the system, and is never mounted")
    if source.parent == Path("/home") or source == Path.home():
        raise MountRefused(f"{key}: {source} is somebody's home: name a directory in it")
    for own in mine:
        if source.is_relative_to(own) or own.is_relative_to(source):
            raise MountRefused(f"{key}: {source} holds the gateway's own files, or is one of them")
    if not (source.is_dir() or source.is_file()):
        raise MountRefused(f"{key}: {source} is neither a directory nor a file")
    return source


def _target(key: str, text: str) -> PurePosixPath:
    target = PurePosixPath(text)
    if not target.is_absolute() or ".." in target.parts or "\0" in text:
        raise MountRefused(f"{key}: {text} is not absolute, or has .. in it")
    if target == PurePosixPath("/") or any(
        target.is_relative_to(system) for system in (*_NO_TARGETS, *_NO_TARGETS_EITHER)
    ):
        raise MountRefused(f"{key}: {target} belongs to the sandbox's own system")
    return target
