"""``skynet gateway run``: start the gateway and say what a person needs to know first."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from skynet.cli import RunOptions
from skynet.cli.errors import CliError, Exit
from skynet.config import (
    TOKEN_FILE_NAME,
    Config,
    ConfigError,
    ensure_gateway_token,
    ensure_home,
    load_config,
)
from skynet.version import VERSION

log = logging.getLogger(__name__)


def run_gateway(options: RunOptions) -> int:
    """Run the gateway until it is told to stop; returns the exit code."""
    try:
        config, is_new_token = prepare(options)
    except CliError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return exc.exit_code
    from skynet.app import serve
    from skynet.gateway.server import CannotListen
    from skynet.hooks.loading import HooksRefused
    from skynet_memory.errors import DatabaseRefused
    from skynet_terminal.processes import hear_signals

    hear_signals()
    try:
        serve(config, on_ready=lambda url: _say(ready_text(config, url, is_new_token=is_new_token)))
    except (CannotListen, DatabaseRefused, HooksRefused) as exc:
        print(f"error: {exc}", file=sys.stderr)
        return Exit.FAILED
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return Exit.OK


def prepare(options: RunOptions) -> tuple[Config, bool]:
    """Configuration, state directory, token and logging; and whether the token is new.

    Raises:
        CliError: the configuration cannot be used, or the state directory cannot be written.
    """
    overrides: dict[str, object] = {}
    for name in ("host", "port"):
        if name in options:
            overrides[f"gateway.{name}"] = options[name]
    if options.get("verbose"):
        overrides["logging.level"] = "debug"
    path = Path(options["config"]) if "config" in options else None
    try:
        config = load_config(path, env=os.environ, overrides=overrides)
        ensure_home(config.home)
        config, is_new_token = ensure_gateway_token(config)
        _configure_logging(config)
    except ConfigError as exc:
        raise CliError(str(exc), exit_code=Exit.USAGE, code="bad_config") from exc
    except OSError as exc:
        message = f"cannot write the state directory: {exc.strerror}: {exc.filename}"
        raise CliError(message, exit_code=Exit.USAGE, code="bad_home") from exc
    return config, is_new_token


def _configure_logging(config: Config) -> None:
    from skynet.logs import configure_logging

    configure_logging(config.logging.level, config.logging.file)


def ready_text(config: Config, url: str, *, is_new_token: bool) -> str:
    """What a person reads once the gateway listens; the token only when it was made just now."""
    lines = [f"Skynet {VERSION} listens on {url}", f"State is kept in {config.home}"]
    if is_new_token:
        lines += [
            f"Gateway token: {config.gateway.auth.token.reveal()}",
            f"  made just now and shown this once; it is kept in {config.home / TOKEN_FILE_NAME}",
        ]
    if config.enabled_providers:
        lines.append(f"Model: {config.default_model or 'whichever a request names'}")
    else:
        lines += [
            "No model is configured: the built-in offline assistant answers.",
            f"  To change that, set a provider's key (OPENAI_API_KEY and many others), or write {config.file_path}",
            "  (docs/providers.md names every provider, skynet.example.toml every setting), then start again.",
        ]
    lines.append('Try: skynet agent -m "hello"     or: skynet chat')
    return "\n".join(lines)


def _say(text: str) -> None:
    """To stdout, be it a terminal or not; a reader that has gone does not stop the gateway."""
    try:
        print(text, flush=True)
    except OSError:
        log.warning("standard output is closed")
