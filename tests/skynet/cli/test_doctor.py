"""``skynet doctor``, with and without a gateway that runs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from skynet.cli import run_command
from skynet.cli.doctor_checks import database, gateway, worst
from skynet.cli.errors import Exit
from skynet.config import load_config
from tests.skynet.cli.conftest import Outcome, RunningGateway, Skynet, running_gateway, use_environment
from tests.support.programs import needs

Doctor = Callable[..., Outcome]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def doctor(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        use_environment(monkeypatch, home, SKYNET_GATEWAY_PORT=str(free.getsockname()[1]))

    def run(*flags: str) -> Outcome:
        capsys.readouterr()
        code = run_command(["doctor", *flags])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def found(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """The worst finding of each check."""
    findings = json.loads(outcome.out)["findings"]
    order = ("ok", "warn", "fail")
    result: dict[str, dict[str, Any]] = {}
    for finding in sorted(findings, key=lambda each: order.index(each["state"])):
        result[finding["check"]] = finding
    return result


def test_an_empty_home_is_no_failure(doctor: Doctor, home: Path) -> None:
    outcome = doctor("--json")
    told = found(outcome)
    assert told["state directory"]["state"] == told["database"]["state"] == told["disk"]["state"] == "ok"
    assert told["providers"]["state"] == "warn"
    assert "offline assistant" in told["providers"]["message"]
    assert "not running" in told["gateway"]["message"]
    assert "skynet gateway run" in told["gateway"]["hint"]
    assert list(home.iterdir()) == []  # nothing was made
    assert {"ok", "warn", "fail"} >= {finding["state"] for finding in json.loads(outcome.out)["findings"]}


def test_a_home_that_is_not_there_yet(doctor: Doctor, home: Path) -> None:
    home.rmdir()
    told = found(doctor("--json"))
    assert told["state directory"]["state"] == told["database"]["state"] == "ok"
    assert not home.exists()


def test_for_a_person(doctor: Doctor) -> None:
    lines = doctor().out.splitlines()
    assert [line for line in lines if line.startswith("ok    configuration: built-in defaults")]
    assert [line for line in lines if line.startswith("warn  providers: none")]
    assert [line for line in lines if line.startswith("      set a provider's key")]
    assert "\x1b" not in "".join(lines)


def test_a_bad_configuration(doctor: Doctor, home: Path) -> None:
    (home / "skynet.toml").write_text('[gateway]\nprt = 3\n[agent]\nnme = "x"\n')
    outcome = doctor("--json")
    assert outcome.code == Exit.FAILED
    problems = [finding for finding in json.loads(outcome.out)["findings"] if finding["check"] == "configuration"]
    assert [problem["state"] for problem in problems] == ["fail", "fail"]
    assert "gateway.prt" in str(problems)
    assert json.loads(outcome.out)["state"] == "fail"


def test_what_is_open_to_others(doctor: Doctor, home: Path) -> None:
    token = home / "gateway.token"
    token.write_text("secret")
    token.chmod(0o644)
    told = found(doctor("--json"))["state directory"]
    assert (told["state"], told["hint"]) == ("warn", f"chmod 600 {token}")  # nobody comes to it
    home.chmod(0o755)
    outcome = doctor("--json")
    assert outcome.code == Exit.FAILED
    told = found(outcome)["state directory"]
    assert (told["state"], told["hint"]) == ("fail", f"chmod 600 {token}")
    home.chmod(0o700)
    token.chmod(0o600)
    assert found(doctor("--json"))["state directory"]["state"] == "ok"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_cannot_be_written(doctor: Doctor, home: Path) -> None:
    home.chmod(0o500)
    assert found(doctor("--json"))["state directory"]["state"] == "fail"


def test_a_home_that_is_a_file(doctor: Doctor, home: Path) -> None:
    home.rmdir()
    home.write_text("")
    outcome = doctor("--json")
    assert outcome.code == Exit.FAILED
    assert found(outcome)["state directory"]["state"] == "fail"


# The database


def made_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE migrations (component TEXT, number INTEGER, name TEXT, applied_at_ms INTEGER)")
        connection.execute("CREATE TABLE words (word TEXT)")
        connection.executemany("INSERT INTO words VALUES (?)", [("x" * 500,) for _ in range(2000)])
        connection.commit()
    path.chmod(0o600)


def test_a_whole_database_is_only_read(doctor: Doctor, home: Path) -> None:
    path = home / "skynet.db"
    made_database(path)
    before = path.stat().st_mtime_ns, path.read_bytes()
    assert found(doctor("--json"))["database"]["state"] == "ok"
    assert [entry.name for entry in home.iterdir()] == ["skynet.db"]
    assert (path.stat().st_mtime_ns, path.read_bytes()) == before


def test_a_damaged_one(doctor: Doctor, home: Path) -> None:
    path = home / "skynet.db"
    made_database(path)
    with path.open("r+b") as file:
        file.seek(4096 * 4)
        file.write(b"\xff" * 4096 * 20)
    outcome = doctor("--json")
    assert outcome.code == Exit.FAILED
    assert "backup" in found(outcome)["database"]["hint"]


@pytest.mark.parametrize("content", [b"no database at all" * 1000, b"x", b"SQLite format 3\0" + b"\xff" * 5000])
def test_what_is_none(doctor: Doctor, home: Path, content: bytes) -> None:
    (home / "skynet.db").write_bytes(content)
    outcome = doctor("--json")
    assert outcome.code == Exit.FAILED
    assert found(outcome)["database"]["state"] == "fail"


def test_one_of_a_newer_version(doctor: Doctor, home: Path) -> None:
    path = home / "skynet.db"
    made_database(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO migrations VALUES ('memories', 4000, 'm4000_later', 0)")
        connection.commit()
    told = found(doctor("--json"))["database"]
    assert (told["state"], "newer version: memories is at schema 4000" in told["message"]) == ("fail", True)


def test_one_that_is_too_large_to_check(home: Path) -> None:
    path = home / "skynet.db"
    made_database(path)
    now = iter(range(0, 10**9, 10**6))
    [finding] = database(path, clock=lambda: float(next(now)))
    assert finding.state in ("ok", "warn")  # small enough to be done before the clock is looked at


# The gateway


def test_beside_a_gateway_that_runs(gateway: RunningGateway, skynet: Skynet) -> None:
    """Its database is read while it is written."""
    assert skynet("memory", "learn", "bike", "blue").code == Exit.OK
    outcome = skynet("doctor", "--json")
    told = found(outcome)
    assert told["gateway"]["message"].startswith(f"runs at {gateway.url}")
    assert told["database"]["state"] == "ok", told
    assert told["providers"]["message"] == "mock; the model is mock/mock-1"
    assert skynet("memory", "forget", "bike").code == Exit.OK


def test_what_a_gateway_leaves_behind_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "state"
    with running_gateway(home) as ran:
        port = ran.url.rpartition(":")[2]
    use_environment(monkeypatch, home, SKYNET_GATEWAY_PORT=port)
    run_command(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [
        finding
        for finding in findings
        if finding["check"] in ("state directory", "database", "configuration") and finding["state"] != "ok"
    ] == []


def answering(*answers: bytes) -> tuple[socket.socket, threading.Thread]:
    """A server that answers each connection with the next of these, whatever it is asked."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return listener, thread


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "fail"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "fail"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]", "fail"),
        (b"", "fail"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{"version":"0.0.0"}', "warn"),
    ],
)
def test_something_else_on_its_port(home: Path, answer: bytes, state: str) -> None:
    listener, thread = answering(answer)
    with listener:
        env = {"SKYNET_HOME": str(home), "SKYNET_GATEWAY_PORT": str(listener.getsockname()[1])}
        [finding] = gateway(load_config(None, env=env))
        thread.join()
    assert finding.state == state


def test_what_counts() -> None:
    assert worst([]) == "ok"


def test_no_disk(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    for free, state in ((10 * 1024**2, "fail"), (500 * 1024**2, "warn"), (5 * 1024**3, "ok")):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        assert found(doctor("--json"))["disk"]["state"] == state


# Isolation


@needs("bwrap")
def test_which_isolation_is_in_force(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("auto", "bubblewrap"):
        monkeypatch.setenv("SKYNET_TERMINAL_SANDBOX", name)
        findings = [each for each in json.loads(doctor("--json").out)["findings"] if each["check"] == "isolation"]
        assert findings[0]["state"] == "ok", findings
        assert findings[0]["message"].startswith("bubblewrap ")
        assert "network namespace" in findings[0]["message"]


def test_without_any_everybody_is_warned(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYNET_TERMINAL_SANDBOX", "none")
    outcome = doctor("--json")
    told = found(outcome)["isolation"]
    assert (outcome.code, told["state"]) == (Exit.OK, "warn")
    assert "whatever the gateway can" in told["message"]
    assert "bubblewrap" in told["hint"]


def test_one_that_cannot_work(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYNET_TERMINAL_SANDBOX", "podman")
    monkeypatch.setenv("SKYNET_TERMINAL_IMAGE", "localhost/no-such-image:0")
    outcome = doctor("--json")
    told = found(outcome)["isolation"]
    assert (outcome.code, told["state"]) == (Exit.FAILED, "fail")
    assert "podman" in told["message"]
