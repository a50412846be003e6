"""``agent.status``, ``agent.model``, ``providers.list``, ``providers.test``: which models answer, and how they do."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import UNSET

from skynet.gateway.approvals import Record
from skynet.gateway.dispatch import method
from skynet_agent.errors import ProviderError, UnknownModel
from skynet_agent.providers import ModelInfo, Price, ProviderRow
from skynet_agent.router import Router
from skynet_agent.upstream import ProviderHealth
from skynet_memory.ids import DEFAULT_AGENT, UserId
from skynet_protocol.errors import DetailCode, ErrorCode, RequestError
from skynet_protocol.providers import (
    AgentModelParams,
    AgentModelResult,
    AgentStatusParams,
    AgentStatusResult,
    KnownProvider,
    ModelPrice,
    PersonActivity,
    ProviderModel,
    ProvidersListParams,
    ProvidersListResult,
    ProvidersModelsParams,
    ProvidersModelsResult,
    ProviderStatus,
    ProvidersTestParams,
    ProvidersTestResult,
    ProviderTest,
)
from skynet_protocol.scopes import Scope, satisfies
from skynet_users.caller import Caller
from skynet_users.people import User
from skynet_users.permissions import Permission

EVERYBODY = UserId("")
"""Whose sessions an admin sees: nobody's own."""
TEST_TIMEOUT_S = 30.0


class ProviderMethods:
    """The models and the providers they come from.

    Args:
        known: every provider of the registry.
        aliases, pools: names for models, as configured.
        prompt_mode: where the assistant's prompt comes from, in words.
        active_runs: how many runs of somebody are queued or running.
        people: everybody there is, and how many sessions each has.
    """

    def __init__(
        self,
        router: Router,
        *,
        agent_name: str,
        known: Sequence[ProviderRow],
        aliases: Mapping[str, str],
        pools: Mapping[str, tuple[str, ...]],
        prompt_mode: Callable[[], str],
        active_runs: Callable[[UserId], int],
        people: Callable[[], Awaitable[Sequence[tuple[User, int]]]],
        record: Record,
    ) -> None:
        self._router = router
        self._agent_name = agent_name
        self._known = known
        self._aliases = dict(aliases)
        self._pools = dict(pools)
        self._prompt_mode = prompt_mode
        self._active_runs = active_runs
        self._people = people
        self._record = record

    @method("agent.status")
    async def status(self, caller: Caller, params: AgentStatusParams) -> AgentStatusResult:
        """The assistant: its default model, its prompt, and how each provider does (SK-048); for those who see
        everybody's conversations, how many each person has (BA-271)."""
        default = self._router.default()
        sees_all = satisfies(caller.scopes, Scope.ADMIN) and caller.may(Permission.SESSIONS_READ, EVERYBODY)
        return AgentStatusResult(
            agent_id=DEFAULT_AGENT,
            name=self._agent_name,
            model=default.name if default.model else "",
            model_name=self._router.default_name,
            prompt=self._prompt_mode(),
            active_runs=self._active_runs(caller.user_id),
            providers=self._statuses(caller),
            people=[self._activity(user, count) for user, count in await self._people()] if sees_all else UNSET,
        )

    def _activity(self, user: User, sessions: int) -> PersonActivity:
        return PersonActivity(
            user_id=user.id,
            display_name=user.display_name,
            sessions=sessions,
            active_runs=self._active_runs(user.id),
        )

    @method("agent.model")
    async def model(self, caller: Caller, params: AgentModelParams) -> AgentModelResult:
        """The default model, or a new one from the next message on (SK-049); a restart returns to the configured one.

        Raises:
            RequestError: there is no such model, or the connection may not change what everybody gets.
            Forbidden: nor may the person.
        """
        previous = None
        if params.model is not UNSET:
            if not satisfies(caller.scopes, Scope.ADMIN):
                raise RequestError(f"missing scope: {Scope.ADMIN}", details={"code": DetailCode.FORBIDDEN})
            caller.require(Permission.PROVIDERS_MANAGE)
            try:
                previous = self._router.set_default(params.model)
            except UnknownModel as exc:
                raise RequestError(f"invalid model: {exc}", details={"code": DetailCode.INVALID_PARAMS}) from exc
            details = {"agent.model": params.model, "was": previous}
            await self._record("config.changed", actor=caller.user_id, subject="agent.model", details=details)
        default = self._router.default()
        return AgentModelResult(
            name=self._router.default_name,
            model=default.name if default.model else "",
            previous=UNSET if previous is None else previous,
        )

    @method("providers.list")
    def list_providers(self, caller: Caller, params: ProvidersListParams) -> ProvidersListResult:
        """The configured providers, in the order they are asked, and on demand those that could be."""
        providers = self._statuses(caller)
        configured = {provider.name for provider in providers}
        return ProvidersListResult(
            providers=providers,
            aliases=self._aliases,
            pools=self._pools,
            known=UNSET
            if not params.all
            else [
                KnownProvider(
                    name=row.name,
                    title=row.title or row.name,
                    api=row.api,
                    local=row.local,
                    key_variable=row.env_key or UNSET,
                )
                for row in self._known
                if row.name not in configured
            ],
        )

    @method("providers.test")
    async def test(self, caller: Caller, params: ProvidersTestParams) -> ProvidersTestResult:
        """Ask providers for a few tokens, each at most 30 seconds, and say how long the first one took.

        Raises:
            RequestError: no provider has this name, or ``model`` is given without it.
        """
        if params.provider is not UNSET:
            self._check_provider(params.provider)
            asked = [params.provider]
        elif params.model is UNSET:
            asked = [health.name for health in self._router.health()]
        else:
            raise RequestError("invalid providers.test params: model needs a provider")
        model = "" if params.model is UNSET else params.model
        async with asyncio.TaskGroup() as group:
            tests = [group.create_task(self._test(name, model)) for name in asked]
        return ProvidersTestResult(results=[test.result() for test in tests])

    @method("providers.models")
    async def models(self, caller: Caller, params: ProvidersModelsParams) -> ProvidersModelsResult:
        """Ask a provider which models it offers at this moment, whatever the configuration lists.

        Raises:
            RequestError: no provider has this name, or (``UNAVAILABLE``) it does not answer.
        """
        self._check_provider(params.provider)
        try:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                found = await self._router.discover(params.provider)
        except TimeoutError as exc:
            raise _unavailable(f"{params.provider}: no answer within {TEST_TIMEOUT_S:g} s") from exc
        except ProviderError as exc:
            raise _unavailable(str(exc)) from exc
        return ProvidersModelsResult(models=[_model(model) for model in found])

    def _check_provider(self, name: str) -> None:
        names = [health.name for health in self._router.health()]
        if name not in names:
            raise RequestError(
                f"unknown provider {name!r}; configured: {', '.join(names)}", details={"code": DetailCode.NOT_FOUND}
            )

    async def _test(self, name: str, model: str) -> ProviderTest:
        try:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                latency_s = await self._router.ping(name, model)
        except TimeoutError:
            return ProviderTest(provider=name, ok=False, error=f"no answer within {TEST_TIMEOUT_S:g} s")
        except (ProviderError, UnknownModel) as exc:
            return ProviderTest(provider=name, ok=False, error=str(exc))
        return ProviderTest(provider=name, ok=True, latency_ms=round(latency_s * 1000))

    def _statuses(self, caller: Caller) -> list[ProviderStatus]:
        sees_errors = satisfies(caller.scopes, Scope.ADMIN)
        return [_status(health, sees_errors=sees_errors) for health in self._router.health()]


def _unavailable(words: str) -> RequestError:
    return RequestError(words, code=ErrorCode.UNAVAILABLE, details={"code": DetailCode.LLM_ERROR}, retryable=True)


def _status(health: ProviderHealth, *, sees_errors: bool) -> ProviderStatus:
    return ProviderStatus(
        name=health.name,
        title=health.title,
        api=health.api,
        priority=health.priority,
        healthy=health.healthy,
        circuit=health.state,
        failures=health.failures,
        auth=health.auth if sees_errors or not health.refused else "refused",
        local=health.local,
        models=[_model(model) for model in health.models],
        waiting=health.waiting,
        open_for_ms=round(health.opened_for_s * 1000) or UNSET,
        latency_ms=UNSET if health.first_token_s is None else round(health.first_token_s * 1000),
        last_error=health.last_error if sees_errors and health.last_error else UNSET,
        last_error_at=UNSET if health.last_error_ms is None else health.last_error_ms,
        last_success_at=UNSET if health.last_success_ms is None else health.last_success_ms,
    )


def _model(model: ModelInfo) -> ProviderModel:
    return ProviderModel(
        id=model.id,
        name=model.name or UNSET,
        context_window=model.context_window or UNSET,
        max_output_tokens=model.max_output_tokens or UNSET,
        reasoning=model.reasoning,
        tools=model.tools,
        input=model.input,
        price=UNSET if model.price is None else _price(model.price),
    )


def _price(price: Price) -> ModelPrice:
    """Micro-dollars as dollars."""
    return ModelPrice(
        input=price.input / 1e6,
        output=price.output / 1e6,
        cache_read=UNSET if price.cache_read is None else price.cache_read / 1e6,
        cache_write=UNSET if price.cache_write is None else price.cache_write / 1e6,
    )
