"""``config.get`` (OPENCLAW-V3 6.8)."""

from __future__ import annotations

from typing import Any

from skynet_protocol.params import Params, Result

REDACTED = "__OPENCLAW_REDACTED__"
"""Stands for a secret wherever a configuration is shown; writing it back keeps the secret."""


class ConfigGetParams(Params, frozen=True):
    pass


class ConfigIssue(Result):
    path: str
    message: str


class ConfigGetResult(Result):
    """``raw`` and ``parsed`` are null, and ``config`` is empty, when the file cannot be used or may not be seen."""

    path: str
    exists: bool
    raw: str | None
    parsed: Any
    resolved: dict[str, Any]
    valid: bool
    config: dict[str, Any]
    hash: str
    issues: list[ConfigIssue]
    warnings: list[ConfigIssue]
    legacy_issues: list[ConfigIssue]
