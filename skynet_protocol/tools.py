"""``tools.catalog`` (OPENCLAW-V3 6.7)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from skynet_protocol.params import NonEmptyStr, Params, Result

ToolProfileId = Literal["minimal", "coding", "messaging", "full"]
ToolSource = Literal["core", "plugin"]


class ToolsCatalogParams(Params, frozen=True):
    agent_id: NonEmptyStr | UnsetType = UNSET
    include_plugins: bool = True


class ToolCatalogProfile(Result):
    id: ToolProfileId
    label: NonEmptyStr


class ToolCatalogEntry(Result):
    id: NonEmptyStr
    label: NonEmptyStr
    description: str
    source: ToolSource
    default_profiles: list[ToolProfileId]
    plugin_id: NonEmptyStr | UnsetType = UNSET
    optional: bool | UnsetType = UNSET


class ToolCatalogGroup(Result):
    id: NonEmptyStr
    label: NonEmptyStr
    source: ToolSource
    tools: list[ToolCatalogEntry]
    plugin_id: NonEmptyStr | UnsetType = UNSET


class ToolsCatalogResult(Result):
    agent_id: NonEmptyStr
    profiles: list[ToolCatalogProfile]
    groups: list[ToolCatalogGroup]
