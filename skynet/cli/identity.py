"""This machine's device identity, which every connection proves (OPENCLAW-V3 section 4)."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec

from skynet.cli.errors import CliError, Exit
from skynet.config import ensure_home
from skynet_memory.ids import now_ms
from skynet_protocol.device import DeviceIdentity


class _IdentityFile(msgspec.Struct, rename="camel"):
    """``identity/device.json``, as OpenClaw's clients keep it too."""

    version: int
    device_id: str
    public_key_pem: str
    private_key_pem: str
    created_at_ms: int


def load_identity(home: Path) -> DeviceIdentity:
    """The identity kept under ``home``, made at the first call: directory 0700, file 0600.

    Raises:
        CliError: it cannot be read or written, or is damaged. A damaged one is not replaced: the gateway knows the
            device by it.
    """
    file = home / "identity" / "device.json"
    try:
        if not file.exists():
            _store(home, file, DeviceIdentity.generate())
        stored = msgspec.json.decode(file.read_bytes(), type=_IdentityFile)
        identity = DeviceIdentity.from_pem(stored.private_key_pem)
    except OSError as exc:
        message = f"cannot keep the device identity in {file}: {exc.strerror}"
        raise CliError(message, exit_code=Exit.USAGE, code="identity_unavailable") from exc
    except ValueError as exc:  # msgspec's errors and those of the key's format
        raise CliError(
            f"{file} holds no device identity",
            exit_code=Exit.USAGE,
            code="identity_damaged",
            hint="restore it, or move it away to become a new device",
        ) from exc
    return identity


def _store(home: Path, file: Path, identity: DeviceIdentity) -> None:
    """Write the file at once or not at all; of two first commands at the same time, the first one's identity stays."""
    ensure_home(home)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    content = _IdentityFile(
        version=1,
        device_id=identity.device_id,
        public_key_pem=identity.public_pem(),
        private_key_pem=identity.private_pem(),
        created_at_ms=now_ms(),
    )
    fresh = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(fresh, file)
        except FileExistsError:
            pass
    finally:
        fresh.unlink(missing_ok=True)
