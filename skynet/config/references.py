"""Which models the configuration names, to check that each exists."""

from __future__ import annotations

from collections.abc import Collection

from skynet.config.problems import quoted, suggestion
from skynet.config.schema import BUILT_IN_PROVIDER, PROVIDER_REGISTRY, Config


class ModelNames:
    """What ``provider/model``, an alias or a pool may be, to check references against."""

    def __init__(self, config: Config, providers_in_file: Collection[str]) -> None:
        self._aliases = config.models.aliases
        self._pools = config.pools
        # a provider that could not be read still exists; its own problem is reported already
        self._models: dict[str, frozenset[str] | None] = dict.fromkeys(providers_in_file)
        self._models |= dict.fromkeys((row.name for row in PROVIDER_REGISTRY), None)
        self._models[BUILT_IN_PROVIDER] = None
        registry = {row.name: row.models for row in PROVIDER_REGISTRY}
        for name, provider in config.providers.items():
            if provider.models and provider.models != registry.get(name):
                self._models[name] = frozenset(model.id for model in provider.models)

    def problem(self, name: str, *, pools: bool) -> str:
        """What is wrong with this reference, or ""."""
        if name in self._aliases or (pools and name in self._pools):
            return ""
        provider, slash, model = name.partition("/")
        if not slash:
            return "a pool cannot be named here" if name in self._pools else "no alias has this name"
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
