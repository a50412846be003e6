"""Which gateway a command talks to, and with which secrets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter

from skynet.cli.errors import CliError, Exit
from skynet.config import Config, ConfigError, is_loopback, load_config, stored_gateway_token
from skynet_memory.secrets import Secret


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """Where the gateway is. Without options: the one that the local configuration describes."""

    url: Annotated[
        str, Parameter(help="Gateway to talk to (ws://… or wss://…), with --token or --password.", show_default=False)
    ] = ""
    token: Annotated[str, Parameter(help="Gateway token, or a personal sk-sky-… token.", show_default=False)] = ""
    password: Annotated[str, Parameter(help="Password, where the gateway wants one.", show_default=False)] = ""
    config: Annotated[Path | None, Parameter(help="Configuration file.")] = None
    json: Annotated[bool, Parameter(help="Print JSON.", negative=(), show_default=False)] = False


Options = Annotated[GatewayOptions, Parameter(name="*")]
"""How a command takes them: as flags of its own, all of them optional."""
NO_OPTIONS = GatewayOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A gateway's address, the secrets for it, and where this client keeps its identity."""

    url: str
    token: Secret
    password: Secret
    home: Path
    is_local: bool
    """It is the one of the local configuration."""


def local_config(path: Path | None) -> Config:
    """The local configuration.

    Raises:
        CliError: it cannot be used; the message has every problem.
    """
    try:
        return load_config(path, env=os.environ)
    except ConfigError as exc:
        raise CliError(str(exc), exit_code=Exit.USAGE, code="bad_config") from exc


def find_target(options: GatewayOptions) -> Target:
    """The gateway these options mean. A local secret is never sent to an address given with ``--url``.

    Raises:
        CliError: the address is none, or would carry the secret over a network in the clear.
    """
    config = local_config(options.config)
    token, password = Secret(options.token), Secret(options.password)
    if options.url:
        return Target(url=_checked(options.url), token=token, password=password, home=config.home, is_local=False)
    auth = config.gateway.auth
    if not token and not password:
        if auth.mode == "token":
            token = auth.token or stored_gateway_token(config.home)
        elif auth.mode == "password":
            password = auth.password
    return Target(url=local_url(config), token=token, password=password, home=config.home, is_local=True)


def local_url(config: Config) -> str:
    """The address at which this machine reaches the configured gateway."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(config.gateway.host, config.gateway.host)  # noqa: S104
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"ws://{host}:{config.gateway.port}"


def _checked(url: str) -> str:
    no_address = CliError(
        f"{url!r} is no gateway address", exit_code=Exit.USAGE, code="bad_url", hint="use ws://HOST:PORT or wss://…"
    )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise no_address from exc
    if parts.scheme not in ("ws", "wss") or not host or port == 0 or parts.username is not None:
        raise no_address
    if parts.scheme == "ws" and not is_loopback(host):
        raise CliError(
            f"refused: {url} would send the token over the network in the clear",
            exit_code=Exit.USAGE,
            code="insecure_url",
            hint="use wss://, or a tunnel to ws://127.0.0.1:PORT",
        )
    return url
