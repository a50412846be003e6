"""Our gateway, started the way a person starts it: ``skynet gateway run`` with an empty state directory."""

from __future__ import annotations

import json
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.processes import Child, environment, free_port, running, until

START_TIMEOUT_S = 30.0
PROVIDER_KEY = "sk-interop-provider-key"

CONFIGURATION = """\
[agent]
model = "mock/mock-1"

[providers.mock]
api = "openai-completions"
base_url = "{models}"
api_key = "{key}"
models = [{{ id = "mock-1", context_window = 128000 }}]
"""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that answers. ``home`` is its ``SKYNET_HOME``."""

    home: Path
    port: int
    child: Child

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The token that the first start generated."""
        return (self.home / "gateway.token").read_text(encoding="ascii").strip()

    @property
    def configuration(self) -> Path:
        return self.home / "skynet.toml"

    @property
    def log(self) -> Path:
        """The log file that ``logs.tail`` reads."""
        return self.home / "logs" / "skynet.log"

    def health(self) -> dict[str, Any] | None:
        """What ``GET /health`` says, or None when nobody answers."""
        try:
            with urllib.request.urlopen(f"{self.http_url}/health", timeout=5) as answer:
                value = json.load(answer)
        except (OSError, urllib.error.URLError):
            return None
        assert isinstance(value, dict)
        return value


def skynet() -> str:
    """The command that is installed beside this Python, else the one on the path."""
    beside = Path(sys.executable).parent / "skynet"
    found = str(beside) if beside.is_file() else shutil.which("skynet")
    assert found, f"no skynet beside {sys.executable}: install the project first"
    return found


@contextmanager
def running_gateway(directory: Path, models_url: str, port: int = 0) -> Iterator[Gateway]:
    """A gateway with the one provider ``mock``, on ``port`` or a free one; state and output are under ``directory``.

    Without ``models_url`` it has no provider: the offline assistant answers.
    """
    home, port = directory / "skynet-home", port or free_port()
    home.mkdir(mode=0o700, exist_ok=True)
    configuration = CONFIGURATION.format(models=models_url, key=PROVIDER_KEY) if models_url else ""
    (home / "skynet.toml").write_text(configuration, encoding="utf-8")
    env = environment(directory, SKYNET_HOME=str(home))
    command = [skynet(), "gateway", "run", "--port", str(port)]
    with running(command, env=env, cwd=directory, log=directory / "gateway.out") as child:
        gateway = Gateway(home, port, child)
        until(
            lambda: child.process.poll() is not None or gateway.health(),
            START_TIMEOUT_S,
            lambda: f"/health of the gateway\n{child.output}",
        )
        assert child.process.poll() is None, f"the gateway ended with {child.process.poll()}\n{child.output}"
        yield gateway
