"""Skynet's own ``agent.status``, ``agent.model``, ``providers.list`` and ``providers.test``."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, Result

CircuitState = Literal["closed", "open", "half_open"]


class ModelPrice(Result, kw_only=True):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float | UnsetType = UNSET
    cache_write: float | UnsetType = UNSET


class ProviderModel(Result, kw_only=True):
    """A model of a provider; what is left out is not known. ``price`` unknown is not free."""

    id: str
    name: str | UnsetType = UNSET
    context_window: NonNegativeInt | UnsetType = UNSET
    max_output_tokens: NonNegativeInt | UnsetType = UNSET
    reasoning: bool
    tools: bool
    input: tuple[Literal["text", "image"], ...]
    price: ModelPrice | UnsetType = UNSET


class ProviderStatus(Result, kw_only=True):
    """A provider that is configured, as far as requests since the gateway's start tell.

    ``circuit`` is ``open`` while it is passed over after failures, for another ``open_for_ms``. ``auth`` is in words.
    ``latency_ms`` is from a request to the first token, an average. ``last_error`` is told to admins alone: it may hold
    words of somebody's request.
    """

    name: str
    title: str
    api: str
    priority: int
    healthy: bool
    circuit: CircuitState
    failures: NonNegativeInt
    auth: str
    local: bool
    models: list[ProviderModel]
    waiting: NonNegativeInt
    open_for_ms: NonNegativeInt | UnsetType = UNSET
    latency_ms: NonNegativeInt | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    last_error_at: NonNegativeInt | UnsetType = UNSET
    last_success_at: NonNegativeInt | UnsetType = UNSET


class AgentStatusParams(Params, frozen=True):
    pass


class PersonActivity(Result, kw_only=True):
    """How much somebody talks with the assistant, and nothing of what is said."""

    user_id: str
    display_name: str
    sessions: NonNegativeInt
    active_runs: NonNegativeInt


class AgentStatusResult(Result, kw_only=True):
    """``model`` answers by default, ``model_name`` is what stands for it; ``prompt`` says where the prompt is from.
    ``people`` is for those who see everybody's conversations."""

    agent_id: str
    name: str
    model: str
    model_name: str
    prompt: str
    active_runs: NonNegativeInt
    providers: list[ProviderStatus]
    people: list[PersonActivity] | UnsetType = UNSET


class AgentModelParams(Params, frozen=True):
    """``model``: a new default, any name a session may be set to; absent to ask."""

    model: NonEmptyStr | UnsetType = UNSET


class AgentModelResult(Result, kw_only=True):
    """``name`` is the default as it was given, ``model`` the ``provider/model`` that is asked first for it.

    ``previous`` is the name before, if it was set now.
    """

    name: str
    model: str
    previous: str | UnsetType = UNSET


class ProvidersListParams(Params, frozen=True):
    """``all``: those that are known and not configured, too."""

    all: bool = False


class KnownProvider(Result, kw_only=True):
    """A provider that could be configured. ``key_variable`` is the environment variable that would be enough."""

    name: str
    title: str
    api: str
    local: bool
    key_variable: str | UnsetType = UNSET


class ProvidersListResult(Result, kw_only=True):
    providers: list[ProviderStatus]
    aliases: dict[str, str]
    pools: dict[str, tuple[str, ...]]
    known: list[KnownProvider] | UnsetType = UNSET


class ProvidersModelsParams(Params, frozen=True):
    """``provider``: one that is configured."""

    provider: NonEmptyStr


class ProvidersModelsResult(Result, kw_only=True):
    models: list[ProviderModel]


class ProvidersTestParams(Params, frozen=True):
    """``provider``: one of them; absent for all. ``model``: an id of that provider's; absent for its first."""

    provider: NonEmptyStr | UnsetType = UNSET
    model: NonEmptyStr | UnsetType = UNSET


class ProviderTest(Result, kw_only=True):
    """``latency_ms`` is from the request to the first token."""

    provider: str
    ok: bool
    latency_ms: NonNegativeInt | UnsetType = UNSET
    error: str | UnsetType = UNSET


class ProvidersTestResult(Result, kw_only=True):
    results: list[ProviderTest]
