"""``skills.status`` (OPENCLAW-V3 6.7)."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from skynet_protocol.params import NonEmptyStr, Params, Result


class SkillsStatusParams(Params, frozen=True):
    agent_id: NonEmptyStr | UnsetType = UNSET


class SkillRequirements(Result):
    bins: list[str]
    any_bins: list[str]
    env: list[str]
    config: list[str]
    os: list[str]


class SkillConfigCheck(Result):
    path: str
    satisfied: bool


class SkillInstallOption(Result):
    id: str
    kind: str
    label: str
    bins: list[str]


class SkillStatusEntry(Result):
    name: str
    description: str
    source: str
    bundled: bool
    file_path: str
    base_dir: str
    skill_key: str
    always: bool
    disabled: bool
    blocked_by_allowlist: bool
    eligible: bool
    requirements: SkillRequirements
    missing: SkillRequirements
    config_checks: list[SkillConfigCheck]
    install: list[SkillInstallOption]
    emoji: str | UnsetType = UNSET
    homepage: str | UnsetType = UNSET
    primary_env: str | UnsetType = UNSET


class SkillsStatusResult(Result):
    workspace_dir: str
    managed_skills_dir: str
    skills: list[SkillStatusEntry]
