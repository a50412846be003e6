"""``cron.status`` and ``cron.list`` (OPENCLAW-V3 6.9)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.params import NonNegativeInt, Params, Result


class CronStatusParams(Params, frozen=True):
    pass


class CronStatusResult(Result):
    enabled: bool
    store_path: str
    jobs: NonNegativeInt
    next_wake_at_ms: NonNegativeInt | None


class CronListParams(Params, frozen=True):
    include_disabled: bool = False
    limit: Annotated[int, Meta(ge=1, le=200)] | UnsetType = UNSET
    offset: NonNegativeInt = 0
    query: str = ""
    enabled: Literal["all", "enabled", "disabled"] | UnsetType = UNSET
    sort_by: Literal["nextRunAtMs", "updatedAtMs", "name"] = "nextRunAtMs"
    sort_dir: Literal["asc", "desc"] = "asc"


class CronListResult(Result):
    """Without ``limit`` every job is there and ``limit`` is their number, 50 when there is none."""

    jobs: list[dict[str, Any]]
    total: NonNegativeInt
    offset: NonNegativeInt
    limit: NonNegativeInt
    has_more: bool
    next_offset: NonNegativeInt | None
