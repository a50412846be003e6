"""What logging in left behind: one file a kind of login, for the gateway and the command line at once."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from skynet_memory.secrets import Secret

LOCK_POLL_S = 0.05
MOST_BYTES = 64 * 1024
_name = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_token = re.compile(r"[\x21-\x7e]{1,16384}")  # what may stand in a header

_Version: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTokens:
    """What one login gave.

    ``expires_at_ms`` is of the access token; None where it lasts until it is revoked. ``issuer`` is where the login
    was made, ``base_url`` where this account's models are; empty for the usual places.
    """

    access: Secret
    refresh: Secret = field(default_factory=lambda: Secret(""))
    expires_at_ms: int | None = None
    issuer: str = ""
    base_url: str = ""


class _File(msgspec.Struct, rename="camel", omit_defaults=True):
    access_token: str
    refresh_token: str = ""
    expires_at_ms: int | None = None
    issuer: str = ""
    base_url: str = ""


class TokenStore:
    """The files of ``directory`` (0700), ``<name>.json`` (0600). It is made when the first token is written.

    A file is written whole or not at all, and read again when it has changed, so that nobody has to be told of a login.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: dict[str, tuple[_Version, StoredTokens]] = {}

    def path(self, name: str) -> Path:
        """The file of ``name``, whether it is there or not."""
        if not _name.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a login")
        return self.directory / f"{name}.json"

    def read(self, name: str) -> StoredTokens | None:
        """The tokens of ``name`` as they are now, None before the first login. Costs a ``stat`` while nothing changes.

        Raises:
            ValueError: the file holds no tokens; the message names it and what to do.
            OSError: it cannot be read.
        """
        file = self.path(name)
        try:
            with file.open("rb") as stream:
                status = os.fstat(stream.fileno())
                version = (status.st_ino, status.st_mtime_ns, status.st_size)
                known = self._known.get(name)
                if known is not None and known[0] == version:
                    return known[1]
                data = stream.read(MOST_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            self._known.pop(name, None)
            return None
        tokens = _decode(data)
        if tokens is None:
            self._known.pop(name, None)
            raise ValueError(f"{file} holds no tokens; log in again with: skynet providers login {name}")
        self._known[name] = version, tokens
        return tokens

    def write(self, name: str, tokens: StoredTokens) -> None:
        """Put ``tokens`` in the place of what was there.

        Raises:
            OSError: they cannot be written; what was there still is.
        """
        file = self.path(name)
        self._make_directory()
        content = _File(
            access_token=tokens.access.reveal(),
            refresh_token=tokens.refresh.reveal(),
            expires_at_ms=tokens.expires_at_ms,
            issuer=tokens.issuer,
            base_url=tokens.base_url,
        )
        fresh = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(file)
            self._sync_directory()
        finally:
            fresh.unlink(missing_ok=True)

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """Let one process at a time, and one task in it, replace the tokens of ``name``: who waited reads them anew.

        Raises:
            OSError: the directory cannot be written.
        """
        file = self.path(name).with_suffix(".lock")
        self._make_directory()
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # polled, because a thread that waits for a lock cannot be cancelled
            while not _try_lock(descriptor):  # noqa: ASYNC110 - a lock of files announces nothing
                await asyncio.sleep(LOCK_POLL_S)
            yield
        finally:
            os.close(descriptor)  # which releases it

    def _make_directory(self) -> None:
        self.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        if self.directory.stat().st_mode & 0o077:
            self.directory.chmod(0o700)

    def _sync_directory(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_token(text: object) -> bool:
    """Whether ``text`` can be sent as a token: printable ASCII without blanks."""
    return isinstance(text, str) and _token.fullmatch(text) is not None


def _decode(data: bytes) -> StoredTokens | None:
    """The content of a file, None if it is none."""
    if len(data) > MOST_BYTES:
        return None
    try:
        content = msgspec.json.decode(data, type=_File)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, and so are those of UTF-8
        return None
    if not is_token(content.access_token) or not (is_token(content.refresh_token) or not content.refresh_token):
        return None
    return StoredTokens(
        access=Secret(content.access_token),
        refresh=Secret(content.refresh_token),
        expires_at_ms=content.expires_at_ms,
        issuer=content.issuer,
        base_url=content.base_url,
    )
