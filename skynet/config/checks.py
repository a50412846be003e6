"""What the schema alone cannot say: names refer to something, and nobody is let in by accident."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from skynet.config.environment import table_at
from skynet.config.known_providers import is_base_url
from skynet.config.loopback import is_loopback
from skynet.config.problems import KeyPath, ProblemKind, Report, quoted, suggestion
from skynet.config.references import ModelNames
from skynet.config.schema import BUILT_IN_PROVIDER, PLACEHOLDER_TOKEN, Config, GatewayConfig, ProviderConfig
from skynet.config.token import stored_gateway_token
from skynet_agent.registry import REGISTRY, known_provider
from skynet_memory.ids import Role
from skynet_users.permissions import GRANTABLE, Permission, PermissionPolicy, Reach

_PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_MODEL_NAME = re.compile(r"[^/\s\x00-\x1f\x7f]{1,128}")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_SELF_ADDRESSED = ("bedrock", "vertex")
"""Wire APIs whose address follows from region and project."""
_BASE_URL = "an http:// or https:// address without user, password, query and fragment"


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


def check_permissions(config: Config, report: Report) -> None:
    """Every permission exists, and the role can be given it."""
    for role, changes in ((Role.USER, config.permissions.user), (Role.CHILD, config.permissions.child)):
        for word, reach in changes.items():
            path: KeyPath = ("permissions", role.value, word)
            if word not in set(Permission):
                near = suggestion(word, list(Permission))
                report.add(ProblemKind.BAD_VALUE, f"is no permission{near}", path=path, allowed=", ".join(Permission))
                continue
            try:
                PermissionPolicy({role: {word: Reach(reach)}})
            except ValueError:
                can_be_given = ", ".join(sorted(GRANTABLE[role]))
                allowed = "none" if word not in GRANTABLE[role] else "none or own"
                report.bad_value(path, quoted(reach), f"{allowed}; a {role} can be given {can_be_given}")


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
    if config.compaction.model:
        _check_reference(names, config.compaction.model, ("compaction", "model"), report, pools=True)
    if config.filter.model:
        _check_reference(names, config.filter.model, ("filter", "model"), report, pools=True)
    if not config.agent.model and config.enabled_providers and not config.default_model:
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
        is_known = known_provider(name) is not None
        if not (is_known or provider.api in _SELF_ADDRESSED or report.has_problem(url_path)):
            near = suggestion(name, [known.name for known in REGISTRY])
            message = f"is required, since no provider is known by the name {name}{near}"
            report.add(ProblemKind.MISSING_VALUE, message, path=url_path, allowed=_BASE_URL)
    elif not is_base_url(provider.base_url):
        report.bad_value(url_path, "***" if "@" in provider.base_url else quoted(provider.base_url), _BASE_URL)
    for header, value in provider.headers.items():
        if not _HEADER_NAME.fullmatch(header):
            report.bad_value((*path, "headers"), quoted(header), "names of letters, digits and -")
        elif not _HEADER_VALUE.fullmatch(value.reveal()):
            report.bad_value((*path, "headers", header), "***", "printable ASCII without spaces around it")
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
