"""``usage.status``, ``usage.cost`` and ``doctor.memory.status`` (OPENCLAW-V3 6.11)."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from skynet_protocol.params import LenientParams, NonEmptyStr, NonNegativeInt, Result


class UsageStatusParams(LenientParams, frozen=True):
    pass


class UsageWindow(Result):
    label: str
    used_percent: float
    reset_at: NonNegativeInt | UnsetType = UNSET


class ProviderUsage(Result):
    provider: str
    display_name: str
    windows: list[UsageWindow]
    plan: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class UsageStatusResult(Result):
    updated_at: NonNegativeInt
    providers: list[ProviderUsage]


class UsageCostParams(LenientParams, frozen=True):
    """Not validated by OpenClaw: what cannot be read counts as absent; the handler sees to that."""

    days: object = UNSET
    start_date: object = UNSET
    end_date: object = UNSET
    mode: object = UNSET
    utc_offset: object = UNSET
    user_id: NonEmptyStr | UnsetType = UNSET
    """Skynet's own, and validated, as ``all``: another person's costs."""
    all: bool = False
    """Everybody's."""


class UsageTotals(Result, kw_only=True):
    """Tokens, and costs in US dollars. ``missing_cost_entries``: calls whose price is not known, counted as 0."""

    input: NonNegativeInt
    output: NonNegativeInt
    cache_read: NonNegativeInt
    cache_write: NonNegativeInt
    total_tokens: NonNegativeInt
    total_cost: float
    input_cost: float
    output_cost: float
    cache_read_cost: float
    cache_write_cost: float
    missing_cost_entries: NonNegativeInt
    cache_share: float | UnsetType = UNSET
    """The part of the input tokens that providers' caches had, from 0 to 1; Skynet's own."""
    estimated_entries: NonNegativeInt | UnsetType = UNSET
    """Calls of which the provider did not tell what they used; Skynet's own."""


class UsageDay(UsageTotals, kw_only=True):
    """``date`` is ``YYYY-MM-DD`` in the time zone that was asked for."""

    date: str


class UsageModel(UsageTotals, kw_only=True):
    """What one model was used for; Skynet's own."""

    provider: str
    model: str


class UsagePerson(Result, kw_only=True):
    """What one person used; Skynet's own."""

    user_id: str
    display_name: str
    totals: UsageTotals
    daily: list[UsageDay]
    models: list[UsageModel]


class UsageCostResult(Result):
    updated_at: NonNegativeInt
    days: NonNegativeInt
    daily: list[UsageDay]
    totals: UsageTotals
    people: list[UsagePerson] | UnsetType = UNSET
    """With ``userId`` or ``all`` alone: who used it, who cost most first."""


class DoctorMemoryStatusParams(LenientParams, frozen=True):
    pass


class EmbeddingStatus(Result):
    ok: bool
    error: str | UnsetType = UNSET


class DoctorMemoryStatusResult(Result):
    agent_id: str
    embedding: EmbeddingStatus
    provider: str | UnsetType = UNSET
