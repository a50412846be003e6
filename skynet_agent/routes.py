"""What the name of a model means: which models of which providers may answer, the first one first.

The first meaning that applies:

1. empty: the default model. Without one, every provider's first model.
2. an alias, then a pool: an ordered list of names. A pool's order is its own; priorities do not count in it.
3. ``provider/model``; the model's id may contain slashes (``openrouter/anthropic/claude``). What the provider's row
   does not list is as the catalogue describes it.
4. a model id: every provider that lists it.
5. a provider: its first model.

Who comes after the first:

- of a pool, its next member, and nobody else.
- of ``provider/model`` and of a model id, the other providers that list the same id.
- of the default, those and then every other provider with its first model.

Providers stand by priority, **the highest first**, equal ones in the order they are listed. ``offline`` is there when
it is named, when a pool lists it, and for the default when no provider is configured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from skynet_agent.catalogue import model_info
from skynet_agent.errors import UnknownModel
from skynet_agent.providers import OFFLINE, ModelInfo, ProviderRow

TYPICAL_INPUT = 10
TYPICAL_OUTPUT = 1
"""How tokens of prompts and of answers relate where prices are compared and no request is known."""


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
class Target:
    """A model of a provider, to be asked."""

    row: ProviderRow
    info: ModelInfo

    @property
    def name(self) -> str:
        """``provider/model``."""
        return f"{self.row.name}/{self.info.id}"

    def resolved(self) -> ResolvedModel:
        """The same for those who only want to know."""
        return ResolvedModel(provider=self.row.name, model=self.info.id, api=self.row.api, info=self.info)

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """What so many tokens cost, in a unit that only compares; infinite where nobody knows."""
        if self.info.price is None:
            return 0.0 if self.row.local else float("inf")
        price = self.info.price.at(input_tokens)
        return float(price.input * input_tokens + price.output * output_tokens)


@dataclass(frozen=True, slots=True)
class Route:
    """Who may answer, in order, at least one.

    ``pooled``: a person listed them as each other's replacement. The first ``alike`` of them offer the very model that
    was asked for, and nobody said which should.
    """

    targets: tuple[Target, ...]
    pooled: bool = False
    alike: int = 0

    def cheapest_first(self, input_tokens: int, output_tokens: int) -> Route:
        """Those that are alike by the price of so many tokens; unknown prices last, equal ones as they were."""
        offers = sorted(self.targets[: self.alike], key=lambda target: target.cost(input_tokens, output_tokens))
        return Route((*offers, *self.targets[self.alike :]), self.pooled, self.alike)


class Routes:
    """The names that this gateway knows.

    Args:
        providers: rows; a name may occur once.
        default_model: any name; empty for the provider of the highest priority.
        aliases: name → name.
        pools: name → names, in order.
        cheapest: of providers that list the same id the cheapest comes first, whatever the priorities. This is for
            model ids and their aliases; pinned ``provider/model`` and the members of a pool stay as they are (BA-073).
    """

    def __init__(
        self,
        providers: Iterable[ProviderRow],
        *,
        default_model: str = "",
        aliases: Mapping[str, str] | None = None,
        pools: Mapping[str, Sequence[str]] | None = None,
        cheapest: bool = False,
    ) -> None:
        self.rows = sorted(providers, key=lambda row: -row.priority)  # stable: equal ones stay as listed
        self._by_name = {row.name: row for row in self.rows}
        if len(self._by_name) != len(self.rows):
            raise ValueError("two providers have the same name")
        self.default_name = default_model
        """The default as it was given; empty for the first provider's first model."""
        self._aliases = dict(aliases or {})
        self._pools = {name: tuple(members) for name, members in (pools or {}).items()}
        self.cheapest = cheapest

    def models(self) -> list[ResolvedModel]:
        """Every model that providers list, by priority; the offline one if there is no provider."""
        return [Target(row, info).resolved() for row in self.rows or [OFFLINE] for info in row.models]

    def default(self) -> ResolvedModel:
        """The model that is asked first when a request names none; as configured even if nothing has that name."""
        try:
            return self.route("").targets[0].resolved()
        except UnknownModel:
            provider, _, model = self.default_name.rpartition("/")
            return ResolvedModel(provider=provider, model=model, api="", info=ModelInfo(id=model))

    def set_default(self, name: str) -> str:
        """Let ``name`` be the default from now on; empty for none. Returns the name that was it before.

        Raises:
            UnknownModel: nothing has this name; the default stays.
        """
        if name:
            self._named(name)
        previous, self.default_name = self.default_name, name
        return previous

    def problems(self) -> list[str]:
        """Configured names that lead nowhere, in words."""
        names = [("the default model", self.default_name)] if self.rows and self.default_name else []
        names += [(f"alias {alias!r}", alias) for alias in self._aliases]
        names += [(f"pool {pool!r}", member) for pool, members in self._pools.items() for member in members or ("",)]
        found = []
        for what, name in names:
            try:
                self._named(name)
            except UnknownModel as exc:
                found.append(f"{what}: {exc}")
        return found

    def route(self, name: str, *, input_tokens: int = TYPICAL_INPUT, output_tokens: int = TYPICAL_OUTPUT) -> Route:
        """Who may answer a request for ``name``; prices are compared for so many tokens.

        Raises:
            UnknownModel: nothing has this name.
        """
        route = self._named(name) if name else self._default_route()
        return route.cheapest_first(input_tokens, output_tokens) if self.cheapest else route

    def target(self, provider: str, model: str = "") -> Target:
        """A provider's own model, without anybody to replace it; its first one if none is named.

        Raises:
            UnknownModel: there is no such provider, or none of its models has this name.
        """
        found = self._explicit(f"{provider}/{model}") if model else self._provider(provider)
        if not found:
            reason = "it lists no model, so one has to be named" if provider in self._by_name and not model else ""
            raise self._unknown(f"{provider}/{model}" if model else provider, reason)
        return found[0]

    def _default_route(self) -> Route:
        if not self.rows:
            return self._unconfigured()
        if not self.default_name:
            first = tuple(self._first_models())
            if not first:
                raise self._unknown("", "no provider lists a model, and no default model is configured")
            return Route(first)
        route = self._named(self.default_name)
        if route.pooled:
            return route
        return Route(_distinct([*route.targets, *self._first_models()]), alike=route.alike)

    def _unconfigured(self) -> Route:
        """The default without any provider: what it names may still be there (a pool that lists offline)."""
        try:
            return self._named(self.default_name)
        except UnknownModel:
            return Route((Target(OFFLINE, OFFLINE.models[0]),))

    def _named(self, name: str, via: tuple[str, ...] = ()) -> Route:
        if name in via:
            raise self._unknown(name, f"{' → '.join([*via, name])} leads back to itself")
        if name in self._aliases:
            return self._named(self._aliases[name], (*via, name))
        if name in self._pools:
            return self._pool(name, via)
        if pinned := self._explicit(name):
            return Route(tuple(pinned))
        if offers := _distinct(self._offering(name)):
            return Route(offers, alike=len(offers))
        if own := self._provider(name):
            return Route(tuple(own))
        raise self._unknown(name, f"{via[0]!r} stands for it" if via else "")

    def _pool(self, name: str, via: tuple[str, ...]) -> Route:
        """The members that exist, each as itself alone: a pool says completely who may be asked."""
        members, missing = list[Target](), list[str]()
        for member in self._pools[name]:
            try:
                route = self._named(member, (*via, name))
            except UnknownModel as exc:
                missing.append(exc.name)
                continue
            members += route.targets if route.pooled else route.targets[:1]
        if not members:
            raise self._unknown(name, f"none of its members exists: {', '.join(missing) or 'it has none'}")
        return Route(_distinct(members), pooled=True)

    def _explicit(self, name: str) -> list[Target]:
        provider, slash, model = name.partition("/")
        row = self._row(provider)
        if not slash or not model or row is None:
            return []
        own = [Target(row, info) for info in row.models if info.id == model]
        if not own and (row.unlisted_models or not row.models):
            own = [Target(row, model_info(row, model))]
        return list(_distinct([*own, *self._offering(model)])) if own else []

    def _offering(self, model: str) -> list[Target]:
        return [Target(row, info) for row in self.rows for info in row.models if info.id == model]

    def _provider(self, name: str) -> list[Target]:
        row = self._row(name)
        return [Target(row, row.models[0])] if row is not None and row.models else []

    def _row(self, name: str) -> ProviderRow | None:
        return self._by_name.get(name) or (OFFLINE if name == OFFLINE.name else None)

    def _first_models(self) -> Iterable[Target]:
        """Each provider's first model; not of the offline one, which is only asked by name."""
        return [Target(row, row.models[0]) for row in self.rows if row.models and row.api != OFFLINE.api]

    def _unknown(self, name: str, reason: str) -> UnknownModel:
        names = [*self._pools, *self._aliases, *(model.name for model in self.models())]
        return UnknownModel(name, names, reason)


def _distinct(targets: Iterable[Target]) -> tuple[Target, ...]:
    first: dict[str, Target] = {}
    for target in targets:
        first.setdefault(target.name, target)
    return tuple(first.values())
