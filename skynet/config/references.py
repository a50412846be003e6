"""Which models the configuration names, to check that each exists."""

from __future__ import annotations

from collections.abc import Collection

from skynet.config.problems import quoted, suggestion
from skynet.config.schema import BUILT_IN_PROVIDER, Config
from skynet_agent.registry import REGISTRY, known_provider


class ModelNames:
    """What ``provider/model``, an alias, a model's id or a pool may be, to check references against."""

    def __init__(self, config: Config, providers_in_file: Collection[str]) -> None:
        self._aliases = config.models.aliases
        self._pools = config.pools
        # a provider that could not be read still exists; its own problem is reported already
        self._models: dict[str, frozenset[str] | None] = dict.fromkeys(providers_in_file)
        self._models |= dict.fromkeys((known.name for known in REGISTRY), None)
        self._models[BUILT_IN_PROVIDER] = None
        for name, provider in config.providers.items():
            takes_others = provider.unlisted_models
            if takes_others is None:
                takes_others = known_provider(name) is not None
            if provider.models and not takes_others:
                self._models[name] = frozenset(model.id for model in provider.models)
        self._ids = {model.id for provider in config.providers.values() for model in provider.models}
        self._ids.update(model for known in REGISTRY for model in known.models)

    def problem(self, name: str, *, pools: bool) -> str:
        """What is wrong with this reference, or ""."""
        if name in self._aliases or (pools and name in self._pools) or name in self._ids:
            return ""
        provider, slash, model = name.partition("/")
        if not slash:
            return "a pool cannot be named here" if name in self._pools else "no alias and no model has this name"
        if provider not in self._models:
            return f"there is no provider {quoted(provider)}{suggestion(provider, self._models)}"
        models = self._models[provider]
        if not model or (models is not None and model not in models):
            return f"provider {quoted(provider)} has no model {quoted(model)}{suggestion(model, models or ())}"
        return ""

    def is_circular(self, alias: str) -> bool:
        seen = {alias}
        name = self._aliases[alias]
        while name in self._aliases:
            if name in seen:
                return True
            seen.add(name)
            name = self._aliases[name]
        return False

    def known(self, pools: bool) -> str:
        names = [*self._aliases, *(self._pools if pools else ())]
        providers = ", ".join(f"{name}/…" for name in sorted(self._models))
        return ", ".join([*names, providers])
