"""The unmodified OpenClaw command line."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.install import CLIENT, NODE
from interop.processes import end, environment

COMMAND_TIMEOUT_S = 90.0
CALL_FAILED = "Gateway call failed: Error: "

_table_lines = re.compile(r"[\s\u2500-\u257f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a command ended. ``code`` is None when it had to be ended after ``COMMAND_TIMEOUT_S``."""

    command: tuple[str, ...]
    code: int | None
    out: str
    err: str

    def __str__(self) -> str:
        return f"openclaw {' '.join(self.command)} -> {self.code}\n{self.out}\n--- stderr\n{self.err}"

    @property
    def ok(self) -> bool:
        """Whether it succeeded; the assertion message is the outcome."""
        return self.code == 0

    @property
    def value(self) -> Any:
        """What a successful command printed, as JSON."""
        assert self.ok, str(self)
        return json.loads(self.out)

    @property
    def flat(self) -> str:
        """The output without table lines and with single blanks, so that text which a table wraps can be found."""
        return _table_lines.sub(" ", self.out)

    @property
    def refusal(self) -> str:
        """What the gateway answered to a ``gateway call`` that it refused."""
        assert self.code == 1, str(self)
        (text,) = (line for line in self.err.splitlines() if line.startswith(CALL_FAILED))
        return text.removeprefix(CALL_FAILED)


class OpenClaw:
    """One client, with a home, and so a device identity, of its own."""

    def __init__(self, home: Path, url: str, token: str | None) -> None:
        self.home = home
        self.state = home / ".openclaw"
        self.state.mkdir(parents=True, mode=0o700)
        self.configure(url, token)

    def configure(self, url: str, token: str | None) -> None:
        """Write the configuration: a remote gateway, and its token unless there is none."""
        remote = {"url": url} | ({} if token is None else {"token": token})
        # The log goes into the home too: by default every OpenClaw of the machine writes to one file.
        value = {"gateway": {"mode": "remote", "remote": remote}, "logging": {"file": str(self.home / "openclaw.log")}}
        path = self.state / "openclaw.json"
        path.write_text(json.dumps(value), encoding="utf-8")
        path.chmod(0o600)

    @property
    def device(self) -> dict[str, Any]:
        """The device token the client keeps, with its device id."""
        value = json.loads((self.state / "identity" / "device-auth.json").read_text(encoding="utf-8"))
        assert isinstance(value, dict)
        return value

    @property
    def device_id(self) -> str:
        value = self.device["deviceId"]
        assert isinstance(value, str)
        return value

    def argv(self, *command: str) -> list[str]:
        return [str(NODE), str(CLIENT), *command]

    def env(self) -> dict[str, str]:
        return environment(self.home)

    def run(self, *command: str) -> Outcome:
        """Run one command to its end."""
        process = subprocess.Popen(
            self.argv(*command),
            env=self.env(),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        code: int | None = None
        try:
            out, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
            code = process.returncode
        except subprocess.TimeoutExpired:
            end(process, 0.5)
            out, err = process.communicate()
        finally:
            end(process, 0.5)
        return Outcome(command=command, code=code, out=out, err=err)

    def call(self, method: str, params: Mapping[str, Any] | None = None, *options: str) -> Any:
        """The result of ``gateway call METHOD``."""
        return self.run(*call(method, params), *options).value


def call(method: str, params: Mapping[str, Any] | Sequence[Any] | None = None) -> tuple[str, ...]:
    """The command that calls ``method``."""
    return ("gateway", "call", method, "--json", *(("--params", json.dumps(params)) if params is not None else ()))
