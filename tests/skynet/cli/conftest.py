"""A real gateway in a process of its own, before the scripted model server; commands run in the test's process."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from skynet.cli import run_command

TIMEOUT_S = 30.0
SKYNET = (sys.executable, "-m", "skynet.cli")


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """``home`` is its state directory, ``said`` what it printed until it was ready."""

    process: subprocess.Popen[str]
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


def environment(home: Path, **more: str) -> dict[str, str]:
    """This process's environment without settings and keys of whoever runs the tests."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SKYNET_", "OPENAI_"))}
    return {**kept, "SKYNET_HOME": str(home), **more}


@contextmanager
def until_line(
    command: list[str], env: dict[str, str], wanted: str
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that has printed a line with ``wanted`` in it; ended by SIGTERM."""
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        lines: queue.Queue[str | None] = queue.Queue()
        errors: list[str] = []
        readers = [
            threading.Thread(target=lambda: [*map(lines.put, process.stdout or ()), lines.put(None)]),
            threading.Thread(target=lambda: errors.extend(process.stderr or ())),
        ]
        for reader in readers:
            reader.start()
        seen: list[str] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while not seen or wanted not in seen[-1]:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
                assert line is not None, "".join(errors)
                seen.append(line)
            yield process, seen
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)
            for reader in readers:
                reader.join(TIMEOUT_S)


@contextmanager
def running_gateway(home: Path, *flags: str, **env: str) -> Iterator[RunningGateway]:
    """``skynet gateway run`` on a free port; the state directory's file may already be there."""
    command = [*SKYNET, "gateway", "run", "--port", "0", *flags]
    with until_line(command, environment(home, **env), "Try:") as (process, lines):
        url = lines[0].split()[-1]
        yield RunningGateway(process, home, url, "".join(lines))


@pytest.fixture(scope="session")
def models() -> Iterator[str]:
    """The address of the scripted model server."""
    command = [sys.executable, "-m", "tests.support.model_server", "--port", "0"]
    with until_line(command, dict(os.environ), "listening on") as (_, lines):
        yield lines[-1].split()[-1]


@pytest.fixture(scope="session")
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
        if name.startswith(("SKYNET_", "OPENAI_")):
            monkeypatch.delenv(name)
    for name, value in {"SKYNET_HOME": str(home), **more}.items():
        monkeypatch.setenv(name, value)
