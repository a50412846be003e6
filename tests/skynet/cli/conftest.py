"""A real gateway in a process of its own, before the scripted model server; commands run in the test's process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from skynet.cli import run_command
from skynet_agent.registry import REGISTRY

TIMEOUT_S = 30.0
SKYNET = (sys.executable, "-m", "skynet.cli")


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """``home`` is its state directory, ``said`` what it printed until it was ready."""

    process: subprocess.Popen[bytes]
    home: Path
    url: str
    said: str

    @property
    def token(self) -> str:
        return (self.home / "gateway.token").read_text().strip()


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str


Skynet = Callable[..., Outcome]


def is_personal(variable: str) -> bool:
    """Whether it is a setting or a provider's key of whoever runs the tests."""
    return variable.startswith("SKYNET_") or any(variable in known.variables for known in REGISTRY)


def environment(home: Path, **more: str) -> dict[str, str]:
    """This process's environment without what is personal in it."""
    kept = {name: value for name, value in os.environ.items() if not is_personal(name)}
    return {**kept, "SKYNET_HOME": str(home), **more}


@contextmanager
def until_line(command: list[str], env: dict[str, str], wanted: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that has printed a line with ``wanted`` in it, and what it printed so far; ended by SIGTERM."""
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        subprocess.Popen(command, env=env, stdout=out, stderr=err) as process,
    ):
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not re.search(f"{re.escape(wanted)}.*\n", said := _content(out)):
                assert process.poll() is None, _content(err)
                assert time.monotonic() < deadline, said + _content(err)
                time.sleep(0.01)
            yield process, said
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def _content(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), 1_000_000, 0).decode()


@contextmanager
def running_gateway(home: Path, *flags: str, **env: str) -> Iterator[RunningGateway]:
    """``skynet gateway run`` on a free port; the state directory's file may already be there."""
    command = [*SKYNET, "gateway", "run", "--port", "0", *flags]
    with until_line(command, environment(home, **env), "Try:") as (process, said):
        url = said.split("\n", 1)[0].split()[-1]
        yield RunningGateway(process, home, url, said)


@pytest.fixture(scope="package")
def models() -> Iterator[str]:
    """The address of the scripted model server."""
    command = [sys.executable, "-m", "tests.support.model_server", "--port", "0"]
    with until_line(command, dict(os.environ), "listening on") as (_, said):
        yield said.split()[-1]


@pytest.fixture(scope="package")
def gateway(models: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway whose default model is the scripted one."""
    home = tmp_path_factory.mktemp("gateway") / "state"
    home.mkdir()
    (home / "skynet.toml").write_text(
        f'[agent]\nmodel = "mock/mock-1"\n[providers.mock]\nbase_url = "{models}"\napi_key = "k"\n'
        'models = [{ id = "mock-1" }, { id = "mock-2" }]\n'
    )
    with running_gateway(home) as running:
        yield running


@pytest.fixture
def skynet(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Skynet:
    """Run a command against the gateway, as its owner."""
    use_environment(monkeypatch, gateway.home, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2])

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = run_command(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def use_environment(monkeypatch: pytest.MonkeyPatch, home: Path, **more: str) -> None:
    for name in list(os.environ):
        if is_personal(name):
            monkeypatch.delenv(name)
    for name, value in {"SKYNET_HOME": str(home), **more}.items():
        monkeypatch.setenv(name, value)
