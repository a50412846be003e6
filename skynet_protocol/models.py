"""``models.list`` (OPENCLAW-V3 6.7)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from skynet_protocol.params import NonEmptyStr, Params, PositiveInt, Result


class ModelsListParams(Params, frozen=True):
    pass


class ModelChoice(Result):
    id: NonEmptyStr
    name: NonEmptyStr
    provider: NonEmptyStr
    context_window: PositiveInt | UnsetType = UNSET
    reasoning: bool | UnsetType = UNSET
    input: tuple[Literal["text", "image"], ...] | UnsetType = UNSET


class ModelsListResult(Result):
    models: list[ModelChoice]
