"""``exec.approvals.get`` (OPENCLAW-V3 6.12)."""

import asyncio
import hashlib
from pathlib import Path

import msgspec

from skynet.gateway.dispatch import method
from skynet_protocol.exec_approvals import (
    ExecApprovalsDefaults,
    ExecApprovalsFile,
    ExecApprovalsGetParams,
    ExecApprovalsSnapshot,
)
from skynet_users.caller import Caller


class ExecApprovalMethods:
    """The file that says which commands may run without asking."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @method("exec.approvals.get")
    async def get(self, caller: Caller, params: ExecApprovalsGetParams) -> ExecApprovalsSnapshot:
        """The file as it is; an empty one when it is missing or makes no sense. Secrets in it are not shown."""
        raw = await asyncio.to_thread(_read, self._path)
        return ExecApprovalsSnapshot(
            path=str(self._path),
            exists=raw is not None,
            hash=hashlib.sha256(raw or b"").hexdigest(),
            file=_parse(raw),
        )


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _parse(raw: bytes | None) -> ExecApprovalsFile:
    try:
        return msgspec.json.decode(raw or b"", type=ExecApprovalsFile)
    except (msgspec.DecodeError, RecursionError):
        return ExecApprovalsFile(version=1, defaults=ExecApprovalsDefaults(), agents={})
