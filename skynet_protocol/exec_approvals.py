"""``exec.approvals.get`` (OPENCLAW-V3 6.12)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, Result


class ExecApprovalsGetParams(Params, frozen=True):
    pass


class ExecApprovalsSocket(Result):
    """The file also holds the socket's token, which is never shown."""

    path: str | UnsetType = UNSET


class ExecApprovalsDefaults(Result):
    security: str | UnsetType = UNSET
    ask: str | UnsetType = UNSET
    ask_fallback: str | UnsetType = UNSET
    auto_allow_skills: bool | UnsetType = UNSET


class ExecApprovalsAllowlistEntry(Result):
    pattern: str
    id: NonEmptyStr | UnsetType = UNSET
    last_used_at: NonNegativeInt | UnsetType = UNSET
    last_used_command: str | UnsetType = UNSET
    last_resolved_path: str | UnsetType = UNSET


class ExecApprovalsAgent(ExecApprovalsDefaults):
    allowlist: list[ExecApprovalsAllowlistEntry] | UnsetType = UNSET


class ExecApprovalsFile(Result):
    version: Literal[1]
    socket: ExecApprovalsSocket | UnsetType = UNSET
    defaults: ExecApprovalsDefaults | UnsetType = UNSET
    agents: dict[str, ExecApprovalsAgent] | UnsetType = UNSET


class ExecApprovalsSnapshot(Result):
    """``hash`` is the SHA-256 of the file's text, hex."""

    path: NonEmptyStr
    exists: bool
    hash: NonEmptyStr
    file: ExecApprovalsFile
