"""What the registry and the environment say of providers, put under what the configuration says of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from skynet.config.environment import table_at
from skynet.config.problems import Report
from skynet.config.schema import CREDENTIALS_DIRECTORY, Config, ModelConfig, ProviderConfig
from skynet_agent.registry import REGISTRY, KnownProvider
from skynet_memory.secrets import Secret

_PLACEHOLDER = re.compile(r"\{([A-Z0-9_]+)\}")


def complete_providers(config: Config, tree: Mapping[str, Any], env: Mapping[str, str], report: Report) -> Config:
    """Add what the registry and the environment know, and switch off the providers that lack a key or an address."""
    providers = dict(config.providers)
    for known in REGISTRY:
        section = table_at(tree, "providers", known.name)
        if section is None:
            if _is_enabled(known, env, report.home):
                provider = _completed(known, ProviderConfig(), None, env, report)
                if known.name not in report.missing:
                    providers[known.name] = provider
        elif known.name in providers:
            providers[known.name] = _completed(known, providers[known.name], section, env, report)
    for name, reason in report.missing.items():
        if name not in providers:
            report.warnings.append(f"provider {name} is off: {reason}")
        elif providers[name].enabled:
            providers[name] = msgspec.structs.replace(providers[name], enabled=False)
            where = report.where(("providers", name, "api_key"))
            report.warnings.append(f"{where}: provider {name} is off: {reason}")
    return msgspec.structs.replace(config, providers=providers)


def _is_enabled(known: KnownProvider, env: Mapping[str, str], home: Path) -> bool:
    """Whether the environment alone, or a login, shows that it is to be used."""
    if any(env.get(variable) for variable in (*known.keys, *known.projects)) or _server_variable(known, env):
        return True
    return known.has_login and (home / CREDENTIALS_DIRECTORY / f"{known.name}.json").is_file()


def _completed(
    known: KnownProvider,
    provider: ProviderConfig,
    section: Mapping[str, Any] | None,
    env: Mapping[str, str],
    report: Report,
) -> ProviderConfig:
    """A provider of the registry: as its section says, if it has one, and for the rest as the registry knows it."""
    row, given = known.row, section or {}
    found: dict[str, Any] = {}
    if "api" not in given:
        found["api"] = row.api
    if "priority" not in given:
        found["priority"] = row.priority
    if not provider.models:
        found["models"] = tuple(ModelConfig(id=model) for model in known.models)
    if not provider.base_url:
        found["base_url"] = _address(known, env, report)
    # the vendor's key is never sent to another address, and who names a profile wants its credentials
    is_its_own = known.own_address or provider.base_url in ("", row.base_url)
    if "api_key" not in given and is_its_own and not provider.profile:
        key = _first((*known.keys, *(() if section is None else known.shared_keys)), env)
        found["api_key"] = Secret(key)
        if known.needs_key and not key:
            report.missing.setdefault(known.name, f"the environment variable {known.keys[0]} is not set")
    if not provider.region:
        found["region"] = _first(known.regions, env)
    if not provider.project:
        found["project"] = _first((*known.projects, *(() if section is None else known.shared_projects)), env)
    return msgspec.structs.replace(provider, **found)


def _address(known: KnownProvider, env: Mapping[str, str], report: Report) -> str:
    """Where it is: as a variable says, else as the registry does, with the variables filled in that it names."""
    if variable := _server_variable(known, env):
        return _server_address(env[variable], known.row.base_url)
    address = known.row.base_url
    for name in _PLACEHOLDER.findall(address):
        address = address.replace(f"{{{name}}}", env.get(name, "").rstrip("/"))
        if not env.get(name) or not is_base_url(address):
            lacks = "is not an address" if env.get(name) else "is not set"
            report.missing.setdefault(known.name, f"the environment variable {name} {lacks}")
            return ""
    return address


def _server_variable(known: KnownProvider, env: Mapping[str, str]) -> str:
    """The variable that has the address of one's own server. One that has no address is not meant for us."""
    for variable in known.urls:
        if env.get(variable) and is_base_url(_server_address(env[variable], known.row.base_url)):
            return variable
    return ""


def _server_address(text: str, usual: str) -> str:
    """``OLLAMA_HOST`` and its like: a host, a port or both are enough, and where a server listens on all addresses a
    client asks the machine itself."""
    from urllib.parse import urlsplit

    scheme, separator, rest = text.strip().rpartition("://")
    place, slash, path = rest.rstrip("/").partition("/")
    host, _, port = place.rpartition(":") if re.search(r":\d+$", place) else (place, "", "")
    if host in ("0.0.0.0", "[::]") or not (host or separator):  # noqa: S104 - not to listen on
        host = "127.0.0.1"
    parts = urlsplit(usual)
    if not port and not separator:
        port = str(parts.port)
    return f"{scheme or 'http'}://{host}{':' if port else ''}{port}{slash}{path}" + ("" if slash else parts.path)


def _first(variables: tuple[str, ...], env: Mapping[str, str]) -> str:
    return next((env[variable] for variable in variables if env.get(variable)), "")


def is_base_url(url: str) -> bool:
    """Whether it is an address that requests may be sent to, without credentials and anything behind the path."""
    from urllib.parse import urlsplit  # only with a provider

    try:
        parts = urlsplit(url)
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment or "@" in parts.netloc or re.search(r"\s", url))
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port_is_right and plain
