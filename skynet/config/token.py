"""The gateway token that is generated at the first start, and the directory it is kept in."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from skynet.config.schema import Config
from skynet_memory.secrets import Secret, random_token

TOKEN_FILE_NAME = "gateway.token"  # noqa: S105
TOKEN_BYTES = 32


def ensure_home(home: Path) -> None:
    """Make the state directory, readable by its owner alone (0700). One that exists keeps its mode.

    Raises:
        OSError: it cannot be made, or the path is no directory.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)


def stored_gateway_token(home: Path) -> Secret:
    """The token an earlier start generated, or an empty one."""
    try:
        return Secret((home / TOKEN_FILE_NAME).read_text(encoding="ascii").strip())
    except (FileNotFoundError, NotADirectoryError):
        return Secret("")


def ensure_gateway_token(config: Config) -> tuple[Config, bool]:
    """Fill in ``gateway.auth.token`` where mode ``token`` has none: the stored one, else a new one that is stored with
    mode 0600.

    Returns the configuration to use and whether the token was generated just now (so that it is printed once). Two
    starts at the same time agree on one token: the file appears complete or not at all, and the first one wins.

    Raises:
        OSError: the state directory or the file cannot be read or written.
    """
    auth = config.gateway.auth
    if auth.mode != "token" or auth.token:
        return config, False
    token, generated = stored_gateway_token(config.home), False
    if not token:
        token, generated = _store_new_token(config.home)
    auth = msgspec.structs.replace(auth, token=token)
    return msgspec.structs.replace(config, gateway=msgspec.structs.replace(config.gateway, auth=auth)), generated


def _store_new_token(home: Path) -> tuple[Secret, bool]:
    import secrets  # only at the first start

    ensure_home(home)
    token = random_token(TOKEN_BYTES)
    final = home / TOKEN_FILE_NAME
    fresh = home / f".{TOKEN_FILE_NAME}.{os.getpid()}.{secrets.token_hex(4)}"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, final)
        except FileExistsError:
            stored = stored_gateway_token(home)
            if stored:
                return stored, False
            fresh.replace(final)  # an empty file is no token
        return Secret(token), True
    finally:
        fresh.unlink(missing_ok=True)
