"""``skynet providers login`` against scripted sign-in services: what it shows, stores and says when it fails."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skynet.cli import run_command
from skynet.cli.errors import Exit
from skynet_agent.auth.tokens import StoredTokens, TokenStore
from skynet_memory.secrets import Secret
from tests.skynet.cli.conftest import SKYNET, TIMEOUT_S, Outcome, environment, use_environment
from tests.support.device_server import DeviceServer, in_a_thread


@pytest.fixture
def server() -> Iterator[DeviceServer]:
    with in_a_thread(DeviceServer()) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "state"
    use_environment(monkeypatch, home)
    return home


class Login:
    """Runs the command in this process."""

    def __init__(self, server: DeviceServer, capsys: pytest.CaptureFixture[str]) -> None:
        self._server = server
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Outcome:
        self._capsys.readouterr()
        code = run_command(["providers", "login", *arguments, "--host", self._server.origin])
        captured = self._capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    def states(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        outcome = self(*arguments, "--json")
        assert outcome.err == ""
        return outcome.code, [json.loads(line) for line in outcome.out.splitlines()]


@pytest.fixture
def login(server: DeviceServer, home: Path, capsys: pytest.CaptureFixture[str]) -> Login:
    return Login(server, capsys)


def stored(home: Path, name: str) -> StoredTokens | None:
    return TokenStore(home / "credentials").read(name)


def test_copilot(login: Login, server: DeviceServer, home: Path) -> None:
    server.github.answers.extend(["authorization_pending", "authorization_pending"])
    outcome = login("copilot")
    assert outcome.code == Exit.OK
    assert outcome.out == (
        f"Open  {server.origin}/login/device\n"
        "and enter the code  ABCD-0001\n"
        "The code is good for 15 min; Ctrl-C cancels.\n"
        "logged in to GitHub Copilot\n"
        f"a gateway that has this provider uses the login from now on ({home}/credentials/copilot.json)\n"
    )
    assert outcome.err == "waiting …\n"
    assert stored(home, "copilot") == StoredTokens(access=Secret(server.github.given[0]), issuer=server.origin)
    assert stat.S_IMODE((home / "credentials" / "copilot.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_qwen(login: Login, server: DeviceServer, home: Path) -> None:
    outcome = login("qwen")
    assert outcome.code == Exit.OK
    assert (
        f"Open  {server.origin}/authorize?user_code=ABCD-0001&client=x\nand agree, if it shows the code  ABCD-0001\n"
        in outcome.out
    )
    tokens = stored(home, "qwen")
    assert tokens is not None
    assert (tokens.access.reveal(), tokens.refresh.reveal()) == (server.qwen.access[0], server.qwen.given[0])
    assert (tokens.issuer, tokens.base_url) == (server.origin, "https://portal.qwen.ai/v1")
    assert tokens.expires_at_ms is not None
    assert abs(tokens.expires_at_ms / 1000 - time.time() - 1800) < 60


def test_a_line_for_each_state(login: Login, server: DeviceServer, home: Path) -> None:
    server.qwen.answers.append("authorization_pending")
    code, states = login.states("qwen")
    assert code == Exit.OK
    assert states == [
        {
            "state": "code",
            "provider": "qwen",
            "url": f"{server.origin}/authorize",
            "completeUrl": f"{server.origin}/authorize?user_code=ABCD-0001&client=x",
            "code": "ABCD-0001",
            "expiresInS": 900,
        },
        {"state": "waiting", "remainingS": 900},
        {"state": "waiting", "remainingS": 900},
        {"state": "done", "provider": "qwen", "file": f"{home}/credentials/qwen.json"},
    ]


@pytest.mark.parametrize("provider", ["copilot", "qwen"])
@pytest.mark.parametrize(
    ("answer", "code", "message", "hint"),
    [
        ("expired_token", "login_expired", "the code expired before anybody entered it", "log in again for a new code"),
        (
            "access_denied",
            "login_denied",
            "the request was denied",
            "if that was a mistake, log in again for a new code",
        ),
        ("odd", "login_refused", "the login was refused: scripted odd", ""),
    ],
)
def test_logins_that_come_to_nothing(
    login: Login, server: DeviceServer, home: Path, provider: str, answer: str, code: str, message: str, hint: str
) -> None:
    for service in (server.github, server.qwen):
        service.answers.append(answer)
    outcome = login(provider)
    assert outcome.code == Exit.FAILED
    assert message in outcome.err
    assert hint in outcome.err
    for service in (server.github, server.qwen):
        service.answers.append(answer)
    exit_code, states = login.states(provider)
    assert exit_code == Exit.FAILED
    error = states[-1]["error"]
    assert (states[-1]["state"], error["code"], error.get("hint", ""), error["exitCode"]) == ("failed", code, hint, 1)
    assert message in error["message"]
    assert stored(home, provider) is None


def test_nobody_enters_the_code(login: Login, server: DeviceServer) -> None:
    server.github.expires_in = 0.05
    server.github.answers.extend(["authorization_pending"] * 100)
    outcome = login("copilot")
    assert outcome.code == Exit.FAILED
    assert outcome.err.endswith("the code expired before anybody entered it\n  log in again for a new code\n")


def test_an_account_without_copilot(login: Login, server: DeviceServer, home: Path) -> None:
    server.github.faults.append(403)
    outcome = login("copilot")
    assert outcome.code == Exit.FAILED
    assert "Copilot has to be enabled for this GitHub account" in outcome.err
    assert stored(home, "copilot") is None


def test_an_exchange_that_fails_now_costs_no_login(login: Login, server: DeviceServer, home: Path) -> None:
    server.github.faults.append(503)
    outcome = login("copilot")
    assert outcome.code == Exit.OK
    assert "whether this account may use GitHub Copilot could not be asked: copilot: scripted 503" in outcome.out
    assert stored(home, "copilot") is not None


def test_a_login_replaces_the_one_before(login: Login, server: DeviceServer, home: Path) -> None:
    (home / "credentials").mkdir(parents=True)
    (home / "credentials" / "copilot.json").write_text("damaged")
    for number in range(2):
        assert login("copilot").code == Exit.OK
        tokens = stored(home, "copilot")
        assert tokens is not None and tokens.access.reveal() == server.github.given[number]


def test_a_service_that_is_not_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["providers", "login", "qwen", "--host", "http://127.0.0.1:1"]) == Exit.FAILED
    assert "qwen: no connection to http://127.0.0.1:1: Connection refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nobody"],
        [],
        ["copilot", "--host", "http://example.org"],
        ["copilot", "--host", "exam ple.org"],
        ["copilot", "--host", "example.org/path"],
    ],
)
def test_what_cannot_be_asked_for(home: Path, arguments: list[str]) -> None:
    assert run_command(["providers", "login", *arguments]) == Exit.USAGE
    assert not (home / "credentials").exists()


def test_a_state_directory_that_cannot_be_made(home: Path, login: Login) -> None:
    home.write_text("a file")
    outcome = login("qwen")
    assert outcome.code == Exit.USAGE
    assert f"the state directory {home} cannot be made: File exists" in outcome.err


def test_a_login_that_cannot_be_stored(home: Path, login: Login) -> None:
    home.mkdir()
    (home / "credentials").write_text("a file")
    outcome = login("qwen")
    assert outcome.code == Exit.FAILED
    assert f"the login cannot be stored in {home}/credentials/qwen.json: File exists" in outcome.err


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c(server: DeviceServer, home: Path, flags: list[str]) -> None:
    server.qwen.interval = 30
    command = [*SKYNET, "providers", "login", "qwen", "--host", server.origin, *flags]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(home), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert "ABCD-0001" in process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == Exit.INTERRUPTED
    assert "Traceback" not in err
    said = json.loads(out.splitlines()[-1])["state"] if flags else err.splitlines()[-1]
    assert said == ("cancelled" if flags else "cancelled; nothing was stored")
    assert stored(home, "qwen") is None


def test_a_terminal_sees_the_time_that_is_left(server: DeviceServer, home: Path) -> None:
    server.github.answers.extend(["authorization_pending"] * 3)
    leader, follower = pty.openpty()
    command = [*SKYNET, "providers", "login", "copilot", "--host", server.origin]
    try:
        with subprocess.Popen(command, env=environment(home), stdout=follower, stderr=follower) as process:
            assert process.wait(TIMEOUT_S) == Exit.OK
        shown = os.read(leader, 65536).decode()
    finally:
        os.close(leader)
        os.close(follower)
    assert re.search(r"\rwaiting, 15:00 left .*\r\x1b\[Klogged in to GitHub Copilot\r\n", shown, re.DOTALL)


def test_nothing_that_is_shown_holds_a_token(login: Login, server: DeviceServer) -> None:
    shown = ""
    for provider in ("copilot", "qwen"):
        for answer in ("granted", "odd"):
            for service in (server.github, server.qwen):
                service.answers.append(answer)
            outcome = login(provider, "--json")
            shown += outcome.out + outcome.err
            for service in (server.github, server.qwen):
                service.answers.clear()
    assert "ABCD" in shown
    assert "secret" not in shown
