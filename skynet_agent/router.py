"""Which provider answers a request, and which one is asked next when it fails.

What a name means, the first that applies:

1. empty: the default model. Without one, every provider's first model.
2. an alias, then a pool: an ordered list of names. A pool's order is its own; priorities do not count in it.
3. ``provider/model``; the model's id may contain slashes (``openrouter/anthropic/claude``).
4. a model id: every provider that lists it.
5. a provider: its first model.

Who is asked after a retriable failure (``ProviderError.retriable``), and only before anything was shown:

- of a pool, its next member. This is the one case where ``AuthFailed`` moves on too, with a warning.
- of ``provider/model`` and of a model id, the other providers that list the same id.
- of the default, those and then every other provider with its first model.

Providers are asked by priority, **the highest first**, equal ones in the order they are listed. ``offline`` is asked
when it is named, when a pool lists it, and for the default when no provider is configured. Nothing is remembered from
one request to the next.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from skynet_agent.apis import wire_apis
from skynet_agent.cost import with_cost
from skynet_agent.draft import Draft
from skynet_agent.errors import AuthFailed, ProviderError, StreamCut, UnknownModel
from skynet_agent.events import Attempt, Ended, Finished, ModelEvent, Started
from skynet_agent.http_client import HttpClient
from skynet_agent.providers import OFFLINE, ModelInfo, ProviderRow
from skynet_agent.requests import ModelRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel:
    """A model that a name stands for."""

    provider: str
    model: str
    api: str
    info: ModelInfo

    @property
    def name(self) -> str:
        """``provider/model``."""
        return f"{self.provider}/{self.model}"

    @property
    def context_window(self) -> int | None:
        return self.info.context_window


@dataclass(frozen=True, slots=True)
class _Target:
    row: ProviderRow
    info: ModelInfo

    @property
    def name(self) -> str:
        return f"{self.row.name}/{self.info.id}"

    def resolved(self) -> ResolvedModel:
        return ResolvedModel(provider=self.row.name, model=self.info.id, api=self.row.api, info=self.info)


@dataclass(frozen=True, slots=True)
class _Route:
    targets: tuple[_Target, ...]
    pooled: bool = False


def local_now() -> datetime:
    """The time of now in the machine's zone."""
    return datetime.now().astimezone()


class Router:
    """The models of this gateway.

    Args:
        providers: rows; a name may occur once.
        default_model: any name; empty for the provider of the highest priority.
        aliases: name → name.
        pools: name → names, in order.
        clock: for time stamps, ``Retry-After`` dates and the offline provider.
    """

    def __init__(
        self,
        providers: Sequence[ProviderRow],
        *,
        default_model: str = "",
        aliases: Mapping[str, str] | None = None,
        pools: Mapping[str, Sequence[str]] | None = None,
        clock: Callable[[], datetime] = local_now,
    ) -> None:
        self._rows = sorted(providers, key=lambda row: -row.priority)  # stable: equal ones stay as listed
        self._by_name = {row.name: row for row in self._rows}
        if len(self._by_name) != len(self._rows):
            raise ValueError("two providers have the same name")
        self._default = default_model
        self._aliases = dict(aliases or {})
        self._pools = {name: tuple(members) for name, members in (pools or {}).items()}
        self._clock = clock
        self._http = HttpClient()
        self._apis = wire_apis(self._http, clock, models_configured=bool(self._rows))
        for row in self._rows:
            if row.api not in self._apis:
                known = ", ".join(sorted(self._apis))
                raise ValueError(f"provider {row.name!r}: unknown api {row.api!r}; allowed: {known}")

    async def warm_up(self) -> None:
        """Load in a thread what the first request needs, if there is a provider to ask."""
        if any(row.api != OFFLINE.api for row in self._rows):
            await self._http.warm_up()

    async def aclose(self) -> None:
        """Close the connections to all providers."""
        await self._http.aclose()

    def draft(self) -> Draft:
        """An empty message to pass to ``stream`` or ``run_turn``."""
        return Draft(self._clock)

    # Names

    def models(self) -> list[ResolvedModel]:
        """Every model that providers list, by priority; the offline one if there is no provider."""
        rows = self._rows or [OFFLINE]
        return [_Target(row, info).resolved() for row in rows for info in row.models]

    def resolve(self, name: str) -> ResolvedModel:
        """The model that is asked first for ``name``.

        Raises:
            UnknownModel: nothing has this name.
        """
        return self._route(name).targets[0].resolved()

    def default(self) -> ResolvedModel:
        """The model that is asked first when a request names none; as configured even if nothing has that name."""
        try:
            return self.resolve("")
        except UnknownModel:
            provider, _, model = self._default.rpartition("/")
            return ResolvedModel(provider=provider, model=model, api="", info=ModelInfo(id=model))

    def problems(self) -> list[str]:
        """Configured names that lead nowhere, in words, for the log at start. Requests for them raise UnknownModel."""
        names = [("the default model", self._default)] if self._rows and self._default else []
        names += [(f"alias {alias!r}", alias) for alias in self._aliases]
        names += [(f"pool {pool!r}", member) for pool, members in self._pools.items() for member in members or ("",)]
        found = []
        for what, name in names:
            try:
                self._named(name)
            except UnknownModel as exc:
                found.append(f"{what}: {exc}")
        return found

    def _route(self, name: str) -> _Route:
        if name:
            return self._named(name)
        if not self._rows:
            return self._unconfigured()
        if not self._default:
            first = tuple(self._first_models())
            if not first:
                raise self._unknown(name, "no provider lists a model, and no default model is configured")
            return _Route(first)
        route = self._named(self._default)
        if route.pooled:
            return route
        return _Route(_distinct([*route.targets, *self._first_models()]))

    def _unconfigured(self) -> _Route:
        """The default without any provider: what it names may still be there (a pool that lists offline)."""
        try:
            return self._named(self._default)
        except UnknownModel:
            return _Route((_Target(OFFLINE, OFFLINE.models[0]),))

    def _named(self, name: str, via: tuple[str, ...] = ()) -> _Route:
        if name in via:
            raise self._unknown(name, f"{' → '.join([*via, name])} leads back to itself")
        if name in self._aliases:
            return self._named(self._aliases[name], (*via, name))
        if name in self._pools:
            return self._pool(name, via)
        targets = self._explicit(name) or self._offering(name) or self._provider(name)
        if not targets:
            raise self._unknown(name, f"{via[0]!r} stands for it" if via else "")
        return _Route(tuple(targets))

    def _pool(self, name: str, via: tuple[str, ...]) -> _Route:
        """The members that exist, each as itself alone: a pool says completely who may be asked."""
        members, missing = list[_Target](), list[str]()
        for member in self._pools[name]:
            try:
                route = self._named(member, (*via, name))
            except UnknownModel as exc:
                missing.append(exc.name)
                continue
            members += route.targets if route.pooled else route.targets[:1]
        if not members:
            raise self._unknown(name, f"none of its members exists: {', '.join(missing) or 'it has none'}")
        return _Route(_distinct(members), pooled=True)

    def _explicit(self, name: str) -> list[_Target]:
        provider, slash, model = name.partition("/")
        row = self._row(provider)
        if not slash or not model or row is None:
            return []
        own = [_Target(row, info) for info in row.models if info.id == model]
        if not own and (row.unlisted_models or not row.models):
            own = [_Target(row, ModelInfo(id=model))]
        return list(_distinct([*own, *self._offering(model)])) if own else []

    def _offering(self, model: str) -> list[_Target]:
        return [_Target(row, info) for row in self._rows for info in row.models if info.id == model]

    def _provider(self, name: str) -> list[_Target]:
        row = self._row(name)
        return [_Target(row, row.models[0])] if row is not None and row.models else []

    def _row(self, name: str) -> ProviderRow | None:
        return self._by_name.get(name) or (OFFLINE if name == OFFLINE.name else None)

    def _first_models(self) -> Iterable[_Target]:
        """Each provider's first model; not of the offline one, which is only asked by name."""
        return [_Target(row, row.models[0]) for row in self._rows if row.models and row.api != OFFLINE.api]

    def _unknown(self, name: str, reason: str) -> UnknownModel:
        names = [*self._pools, *self._aliases, *(model.name for model in self.models())]
        return UnknownModel(name, names, reason)

    # Calls

    async def stream(self, request: ModelRequest, *, draft: Draft | None = None) -> AsyncGenerator[ModelEvent, None]:
        """Ask the model; closing the generator closes the stream of the provider that answers.

        What has come is in ``draft`` at any time.

        Raises:
            UnknownModel: nothing has the request's name.
            ProviderError: the failure of the provider that was asked last, before anything was shown.
            StreamCut: the answer broke off after its first delta.
        """
        draft = draft or self.draft()
        route = self._route(request.model)
        tried: tuple[Attempt, ...] = ()
        for number, target in enumerate(route.targets, 1):
            row, info = target.row, target.info
            draft.begin(row.name, info.id, row.api)
            shown = False
            try:
                async with aclosing(self._apis[row.api](row, info, request)) as parts:
                    async for part in parts:
                        if not shown:
                            shown = True
                            yield Started(row.name, info.id, row.api, tried)
                        if isinstance(part, Ended):
                            usage = part.usage and with_cost(part.usage, info.price)
                            yield Finished(draft.message(part.stop_reason, usage=usage))
                        else:
                            draft.add(part)
                            yield part
                return
            except ProviderError as exc:
                if shown:
                    raise _cut(exc) from exc
                if number == len(route.targets) or not _moves_on(exc, route):
                    raise
                log.warning("%s failed (%s), trying the next: %s", target.name, type(exc).__name__, exc)
                tried += (Attempt(row.name, info.id, type(exc).__name__, str(exc)),)


def _moves_on(failure: ProviderError, route: _Route) -> bool:
    return failure.retriable or (route.pooled and isinstance(failure, AuthFailed))


def _cut(failure: ProviderError) -> StreamCut:
    return StreamCut(str(failure), provider=failure.provider, status=failure.status)


def _distinct(targets: Iterable[_Target]) -> tuple[_Target, ...]:
    first: dict[str, _Target] = {}
    for target in targets:
        first.setdefault(target.name, target)
    return tuple(first.values())
