"""What the schema alone cannot say: providers are complete, names refer to something, and nobody is let in by
accident."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from skynet.config.environment import table_at
from skynet.config.loopback import is_loopback
from skynet.config.problems import KeyPath, ProblemKind, Report, quoted
from skynet.config.references import ModelNames
from skynet.config.schema import (
    BUILT_IN_PROVIDER,
    PLACEHOLDER_TOKEN,
    PROVIDER_REGISTRY,
    Config,
    GatewayConfig,
    ProviderConfig,
    RegistryRow,
)
from skynet.config.token import stored_gateway_token
from skynet_memory.secrets import Secret

_PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_MODEL_NAME = re.compile(r"[^/\s\x00-\x1f\x7f]{1,128}")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", re.IGNORECASE)
_BASE_URL = "an http:// or https:// address without user, password, query and fragment"


def complete_providers(config: Config, tree: Mapping[str, Any], env: Mapping[str, str], report: Report) -> Config:
    """Add what the registry and the environment know, and switch off the providers whose key is missing."""
    providers = dict(config.providers)
    for row in PROVIDER_REGISTRY:
        provider = _from_registry(row, providers.get(row.name), table_at(tree, "providers", row.name), env, report)
        if provider is not None:
            providers[row.name] = provider
    for name, provider in providers.items():
        if name in report.keyless and provider.enabled:
            providers[name] = msgspec.structs.replace(provider, enabled=False)
            where = report.where(("providers", name, "api_key"))
            variable = report.keyless[name]
            report.warnings.append(f"{where}: provider {name} is off: the environment variable {variable} is not set")
    return msgspec.structs.replace(config, providers=providers)


def _from_registry(
    row: RegistryRow,
    configured: ProviderConfig | None,
    given: Mapping[str, Any] | None,
    env: Mapping[str, str],
    report: Report,
) -> ProviderConfig | None:
    """A provider of the registry as configured (``given``: the keys in the file), or from its variable alone."""
    key = Secret(env.get(row.key_variable, ""))
    if configured is None or given is None:
        if not key or given is not None:
            return None
        return ProviderConfig(api=row.api, base_url=row.base_url, api_key=key, models=row.models)
    if configured.base_url:
        return configured  # the vendor's key is never sent to another address
    configured = msgspec.structs.replace(configured, base_url=row.base_url, models=configured.models or row.models)
    if "api_key" in given:
        return configured
    if not key:
        report.keyless[row.name] = row.key_variable
    return msgspec.structs.replace(configured, api_key=key)


def check_gateway(gateway: GatewayConfig, report: Report) -> None:
    """Addresses are addresses, and a listener that others can reach asks for a secret."""
    for index, origin in enumerate(gateway.origins):
        if not _ORIGIN.fullmatch(origin):
            report.bad_value(("gateway", "origins", index), quoted(origin), "scheme://host[:port], without a path")
    for index, proxy in enumerate(gateway.trusted_proxies):
        if not _is_network(proxy):
            report.bad_value(("gateway", "trusted_proxies", index), quoted(proxy), "an IP address or network")
    if gateway.auth.mode == "password" and not gateway.auth.password:
        message = 'is required because gateway.auth.mode is "password"'
        report.add(ProblemKind.MISSING_VALUE, message, path=("gateway", "auth", "password"), allowed="text")
    if not report.has_problem(("gateway",)):
        _check_exposure(gateway, report)


def _check_exposure(gateway: GatewayConfig, report: Report) -> None:
    """SK-012. Only asked when the section is right otherwise: a refused token is not a missing one."""
    auth = gateway.auth
    secret = auth.token if auth.mode == "token" else auth.password
    is_placeholder = auth.mode != "none" and secret.equals(PLACEHOLDER_TOKEN)
    if is_loopback(gateway.host):
        if is_placeholder:
            report.warnings.append(f'gateway.auth.{auth.mode} is the placeholder "{PLACEHOLDER_TOKEN}": set your own')
        if auth.mode == "none":
            report.warnings.append('gateway.auth.mode is "none": everyone on this machine is the owner')
        return
    key: str = auth.mode
    if auth.mode == "none":
        key, kind, state = "mode", ProblemKind.UNSAFE_NO_AUTH, 'the mode is "none"'
    elif is_placeholder:
        kind, state = ProblemKind.UNSAFE_PLACEHOLDER, f'the {auth.mode} is "{PLACEHOLDER_TOKEN}"'
    elif auth.mode == "token" and not auth.token and not stored_gateway_token(report.home):
        kind, state = ProblemKind.UNSAFE_NO_TOKEN, "no token is set"
    else:
        return
    report.add(
        kind,
        f"refused ({kind}): others can reach {gateway.host} and {state}",
        path=("gateway", "auth", key),
        allowed="a token of your own (SKYNET_GATEWAY_AUTH_TOKEN), or gateway.host on loopback",
    )


def check_models(config: Config, tree: Mapping[str, Any], report: Report) -> None:
    """Providers are complete, and every model that is named somewhere exists."""
    for provider_name, provider in config.providers.items():
        _check_provider(provider_name, provider, report)
    names = ModelNames(config, table_at(tree, "providers") or {})
    for alias, target in config.models.aliases.items():
        path: KeyPath = ("models", "aliases", alias)
        _check_model_name(alias, path, report)
        if alias in config.pools:
            report.add(ProblemKind.BAD_VALUE, "is the name of a pool too", path=path, allowed="a name of its own")
        _check_reference(names, target, path, report, pools=False)
        if names.is_circular(alias):
            report.bad_value(path, quoted(target), "an alias that does not lead back to itself")
    for pool, entries in config.pools.items():
        _check_model_name(pool, ("pools", pool), report)
        if not entries and not report.has_problem(("pools", pool)):
            report.bad_value(("pools", pool), "an empty list", "at least one model")
        for index, entry in enumerate(entries):
            _check_reference(names, entry, ("pools", pool, index), report, pools=False)
    if config.agent.model:
        _check_reference(names, config.agent.model, ("agent", "model"), report, pools=True)
    elif config.enabled_providers and not config.default_model:
        report.warnings.append("agent.model is empty and no provider lists a model: requests have to name one")


def _check_provider(name: str, provider: ProviderConfig, report: Report) -> None:
    path: KeyPath = ("providers", name)
    if name == BUILT_IN_PROVIDER:
        message = "is built in and cannot be configured"
        report.add(ProblemKind.BAD_VALUE, message, path=path, allowed="another name")
        return
    if not _PROVIDER_NAME.fullmatch(name):
        report.bad_value(path, quoted(name), "a name of at most 64 characters from a-z, 0-9, _ . and -")
    url_path: KeyPath = (*path, "base_url")
    if not provider.base_url:
        if not report.has_problem(url_path):
            registry = ", ".join(row.name for row in PROVIDER_REGISTRY)
            message = f"is required, since {name} is not a name of the registry ({registry})"
            report.add(ProblemKind.MISSING_VALUE, message, path=url_path, allowed=_BASE_URL)
    elif not _is_base_url(provider.base_url):
        report.bad_value(url_path, "***" if "@" in provider.base_url else quoted(provider.base_url), _BASE_URL)
    seen: set[str] = set()
    for index, model in enumerate(provider.models):
        if model.id in seen:
            report.bad_value((*path, "models", index, "id"), quoted(model.id), "each model once")
        seen.add(model.id)


def _check_model_name(name: str, path: KeyPath, report: Report) -> None:
    if not _MODEL_NAME.fullmatch(name):
        report.bad_value(path, quoted(name), "a name without slash and space, at most 128 characters")


def _check_reference(names: ModelNames, name: str, path: KeyPath, report: Report, *, pools: bool) -> None:
    problem = names.problem(name, pools=pools)
    if problem:
        report.add(
            ProblemKind.UNKNOWN_REFERENCE,
            f"{quoted(name)}: {problem}",
            path=path,
            seen=quoted(name),
            allowed=names.known(pools),
        )


def _is_network(text: str) -> bool:
    from ipaddress import ip_network  # rarely configured

    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _is_base_url(url: str) -> bool:
    from urllib.parse import urlsplit  # only with a provider

    try:
        parts = urlsplit(url)
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment or "@" in parts.netloc or re.search(r"\s", url))
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port_is_right and plain
