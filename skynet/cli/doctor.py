"""``skynet doctor``: what is right, what is not, and what to do about it. Changes nothing and needs no gateway."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from skynet.cli.doctor_checks import (
    Finding,
    configuration,
    database,
    disk,
    gateway,
    isolation,
    providers,
    state_directory,
    worst,
)
from skynet.cli.errors import Exit
from skynet.cli.output import is_terminal, print_json, printable
from skynet.config import find_home

_COLOURS = {"ok": "\x1b[32m", "warn": "\x1b[33m", "fail": "\x1b[31m"}


def doctor(
    *,
    config: Annotated[Path | None, Parameter(help="Configuration file.")] = None,
    as_json: Annotated[bool, Parameter(name="--json", help="Print JSON.", negative=(), show_default=False)] = False,
) -> int:
    """Say what is right and what is not: the configuration, the state, isolation, providers, the gateway."""
    findings = []
    for finding in _all(config):
        findings.append(finding)
        if not as_json:
            _print(finding)
    state = worst(findings)
    if as_json:
        print_json({"state": state, "findings": [asdict(finding) for finding in findings]})
    return Exit.FAILED if state == "fail" else Exit.OK


def _all(path: Path | None) -> Iterator[Finding]:
    env = dict(os.environ)
    config, told = configuration(path, env)
    yield from told
    home = find_home(env) if config is None else config.home
    yield from state_directory(home)
    yield from disk(home)
    if config is None:
        return
    yield from database(config.database.path)
    yield from asyncio.run(isolation(config))
    yield from providers(config)
    yield from gateway(config)


def _print(finding: Finding) -> None:
    word = f"{finding.state:4}"
    if is_terminal() and "NO_COLOR" not in os.environ:
        word = f"{_COLOURS[finding.state]}{word}\x1b[0m"
    print(f"{word}  {finding.check}: {printable(finding.message)}", flush=True)
    if finding.hint:
        print(f"      {printable(finding.hint)}", flush=True)
