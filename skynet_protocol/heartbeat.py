"""``wake``, ``last-heartbeat``, ``set-heartbeats``, and heartbeats in ``health`` and ``status`` (OPENCLAW-V3 6.3)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET

from skynet_protocol.params import LenientParams, NonEmptyStr, NonNegativeInt, Params, Result


class WakeParams(Params, frozen=True):
    """``now`` asks for a heartbeat run at once, ``next-heartbeat`` leaves the text for the next one."""

    mode: Literal["now", "next-heartbeat"]
    text: NonEmptyStr


class WakeResult(Result):
    ok: bool


class LastHeartbeatParams(LenientParams, frozen=True):
    pass


class SetHeartbeatsParams(LenientParams, frozen=True):
    """``enabled`` is checked by the handler, which owes the client OpenClaw's own words."""

    enabled: object = UNSET


class SetHeartbeatsResult(Result):
    ok: bool
    enabled: bool


class HeartbeatSummary(Result):
    """How an agent's heartbeat is set. ``every`` reads ``disabled`` and ``every_ms`` is null when there is none."""

    enabled: bool
    every: str
    every_ms: NonNegativeInt | None
    prompt: str
    target: str
    ack_max_chars: NonNegativeInt
