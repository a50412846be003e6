"""``skynet config``; needs no gateway."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from skynet.cli.errors import Exit
from skynet.cli.output import print_fields, print_json, print_notice, printable
from skynet.cli.target import local_config
from skynet.config import ConfigError, config_to_public, find_config_file, load_config

ConfigFile = Annotated[Path | None, Parameter(help="File to read instead of the usual one.")]
AsJson = Annotated[bool, Parameter(name="--json", help="Print JSON.", negative=(), show_default=False)]


def check(*, config: ConfigFile = None, as_json: AsJson = False) -> int:
    """Say whether the configuration can be used, and everything that is wrong with it."""
    file, _ = find_config_file(config, os.environ)
    try:
        loaded = load_config(config, env=os.environ)
    except ConfigError as exc:
        if as_json:
            problems = [asdict(problem) for problem in exc.problems]
            print_json({"ok": False, "file": str(file), "problems": problems, "warnings": []})
        else:
            print(printable(str(exc)))
        return Exit.USAGE
    if as_json:
        used = None if loaded.file is None else str(loaded.file)
        print_json({"ok": True, "file": used, "problems": [], "warnings": loaded.warnings})
        return Exit.OK
    for warning in loaded.warnings:
        print_notice(f"warning: {warning}")
    print(f"ok: {loaded.file}" if loaded.file else f"ok: built-in defaults ({file} does not exist)")
    return Exit.OK


def show(*, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the configuration as it is used: file, environment and defaults together. Secrets are shown as ***."""
    public = config_to_public(local_config(config))
    if as_json:
        print_json(public)
    else:
        print_fields((key, msgspec.json.encode(value).decode()) for key, value in _flat(public))


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
