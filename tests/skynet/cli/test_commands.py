"""Every command against a real gateway: what it prints, what it prints for scripts, and its exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from skynet.cli import run_command
from skynet.cli.errors import Exit
from tests.skynet.cli.conftest import (
    SKYNET,
    TIMEOUT_S,
    RunningGateway,
    Skynet,
    environment,
    running_gateway,
    use_environment,
)


class TestStatus:
    def test_for_a_person(self, skynet: Skynet, gateway: RunningGateway) -> None:
        outcome = skynet("status")
        assert outcome.code == Exit.OK
        assert f"gateway\t{gateway.url} (running)\nversion\t" in outcome.out
        assert f"state\t{gateway.home}" in outcome.out
        assert "mock-1" in outcome.out
        assert "prompt\tbuilt-in prompt\nproviders\t1\n" in outcome.out
        assert re.search(r"last 30 days\t\d+ tokens, \d+% of the input cached, \$\d", outcome.out)

    def test_for_a_script(self, skynet: Skynet, gateway: RunningGateway) -> None:
        facts = json.loads(skynet("status", "--json").out)
        assert facts["url"] == gateway.url
        assert facts["health"]["ok"] is True
        assert facts["authMode"] == "token"

    def test_the_identity_is_kept_private(self, skynet: Skynet, gateway: RunningGateway) -> None:
        skynet("status")
        file = gateway.home / "identity" / "device.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


class TestAgent:
    def test_a_pipe_gets_the_whole_answer(self, skynet: Skynet) -> None:
        outcome = skynet("agent", "-m", "tokens=5")
        assert (outcome.code, outcome.out) == (Exit.OK, "w0 w1 w2 w3 w4\n")

    def test_json_is_the_final_answer(self, skynet: Skynet) -> None:
        answer = json.loads(skynet("agent", "-m", "say=hello there", "--json").out)
        assert answer["status"] == "ok"
        assert answer["result"]["payloads"][0]["text"] == "hello there"

    def test_a_session_of_its_own_and_a_model(self, skynet: Skynet) -> None:
        answer = json.loads(
            skynet("agent", "-m", "tokens=1", "--session", "other", "--model", "mock/mock-2", "--json").out
        )
        assert answer["result"]["meta"]["agentMeta"]["model"] == "mock-2"
        listed = json.loads(skynet("sessions", "list", "--json").out)["sessions"]
        assert "agent:main:other" in [row["key"] for row in listed]

    def test_an_unknown_model(self, skynet: Skynet) -> None:
        outcome = skynet("agent", "-m", "x", "--session", "third", "--model", "nope/x")
        assert (outcome.code, outcome.out) == (Exit.FAILED, "")
        assert "nope/x" in outcome.err

    def test_a_model_that_fails(self, skynet: Skynet) -> None:
        outcome = skynet("agent", "-m", "fail=400")
        assert outcome.code == Exit.FAILED
        assert outcome.err.startswith("error: ")

    def test_an_empty_message(self, skynet: Skynet) -> None:
        assert skynet("agent", "-m", "  ").code == Exit.USAGE

    def test_control_characters_do_not_reach_the_terminal(self, skynet: Skynet) -> None:
        assert "\x1b" not in skynet("agent", "-m", "say=\x1b[31mred").out

    def test_standard_input(self, gateway: RunningGateway) -> None:
        result = run_piped(gateway, "agent", "-m", "-", text="say=from a pipe")
        assert (result.returncode, result.stdout) == (0, "from a pipe\n")

    def test_ctrl_c_stops_the_run(self, gateway: RunningGateway, skynet: Skynet) -> None:
        session = f"stopped-{uuid.uuid4()}"
        command = [*SKYNET, "agent", "-m", "hang", "--session", session]
        with subprocess.Popen(command, env=client_environment(gateway), stdout=subprocess.PIPE, text=True) as process:
            eventually(lambda: "hang" in skynet("sessions", "show", session).out)
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_S) == Exit.INTERRUPTED
        eventually(lambda: json.loads(skynet("sessions", "list", "--search", session, "--json").out)["count"] == 1)


class TestProviders:
    """More of them are in ``test_providers``."""

    def test_those_that_could_be_used_are_listed_with_how(self, skynet: Skynet) -> None:
        first, *known = [line.split("\t") for line in skynet("providers", "list").out.splitlines()]
        assert first[0] == "mock"
        assert {row[1] for row in known} == {"not configured"}
        how = {row[0]: row[2] for row in known}
        assert how["anthropic"] == "set ANTHROPIC_API_KEY"
        assert how["qwen"] == "run skynet providers login qwen"
        assert how["copilot"] == "run skynet providers login copilot"
        assert how["ollama"] == "add [providers.ollama]"

    def test_asking_for_a_model_of_one(self, skynet: Skynet) -> None:
        result = json.loads(skynet("providers", "test", "mock", "--model", "mock-2", "--json").out)
        assert [(row["provider"], row["ok"]) for row in result["results"]] == [("mock", True)]
        outcome = skynet("providers", "test", "--model", "mock-2")
        assert (outcome.code, outcome.out) == (Exit.FAILED, "")
        assert "model needs a provider" in outcome.err


class TestModels:
    def test_for_a_person(self, skynet: Skynet) -> None:
        outcome = skynet("models", "list")
        assert outcome.code == Exit.OK
        assert outcome.out == "mock/mock-1\tdefault\t\ttools\tunknown\nmock/mock-2\t\t\ttools\tunknown\n"

    def test_for_a_script(self, skynet: Skynet) -> None:
        facts = json.loads(skynet("models", "list", "--json").out)
        assert (facts["default"], facts["aliases"], facts["pools"]) == ("mock/mock-1", {}, {})
        assert [(model["provider"], model["id"]) for model in facts["models"]] == [
            ("mock", "mock-1"),
            ("mock", "mock-2"),
        ]


class TestSessions:
    def test_show(self, skynet: Skynet) -> None:
        skynet("agent", "-m", "say=shown", "--session", "show-me")
        outcome = skynet("sessions", "show", "show-me")
        assert outcome.code == Exit.OK
        assert re.search(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  you\n  say=shown$", outcome.out)
        assert re.search(r"(?m)mock-1\n  shown$", outcome.out)
        history = json.loads(skynet("sessions", "show", "show-me", "--limit", "1", "--json").out)
        assert [message["role"] for message in history["messages"]] == ["assistant"]

    def test_list(self, skynet: Skynet) -> None:
        skynet("agent", "-m", "say=listed", "--session", "list-me")
        first, *_ = skynet("sessions", "list", "--limit", "1").out.splitlines()
        key, _, model, _, updated = first.split("\t")
        assert (key, model) == ("agent:main:list-me", "mock/mock-1")
        assert updated.endswith("s ago")

    def test_one_that_is_not_there(self, skynet: Skynet) -> None:
        outcome = skynet("sessions", "show", "nothing-here")
        assert (outcome.code, outcome.out) == (Exit.FAILED, "")
        assert "there is no conversation nothing-here" in outcome.err

    @pytest.mark.parametrize("limit", ["0", "1001", "x"])
    def test_limits_are_checked(self, skynet: Skynet, limit: str) -> None:
        assert skynet("sessions", "list", "--limit", limit).code == Exit.USAGE


class TestDevices:
    def test_this_client_is_paired(self, skynet: Skynet) -> None:
        rows = [line.split("\t") for line in skynet("devices", "list").out.splitlines()]
        identity = json.loads((Path(os.environ["SKYNET_HOME"]) / "identity" / "device.json").read_text())
        assert [row[:2] for row in rows] == [["paired", identity["deviceId"]]]

    def test_remove_and_return(self, skynet: Skynet) -> None:
        device_id = json.loads(skynet("devices", "list", "--json").out)["paired"][0]["deviceId"]
        outcome = skynet("devices", "remove", device_id)
        assert (outcome.code, outcome.out) == (Exit.OK, f"removed {device_id}\n")
        assert device_id in skynet("devices", "list").out, "a local client with the token is let in again"

    @pytest.mark.parametrize("action", ["approve", "reject", "remove"])
    def test_an_id_that_is_none(self, skynet: Skynet, action: str) -> None:
        outcome = skynet("devices", action, "nope")
        assert (outcome.code, outcome.out) == (Exit.FAILED, "")
        assert "unknown" in outcome.err
        assert "see: skynet devices list" in outcome.err

    def test_a_terminal_shows_an_id_in_one_piece(self, gateway: RunningGateway, skynet: Skynet) -> None:
        device_id = skynet("devices", "list").out.split("\t")[1]
        env = environment(gateway.home, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2], COLUMNS="80")
        screen, terminal = os.openpty()
        with os.fdopen(screen, "rb", buffering=0) as shown:
            try:
                subprocess.run([*SKYNET, "devices", "list"], env=env, stdout=terminal, timeout=TIMEOUT_S, check=True)
                assert f" {device_id}\r\n" in shown.read(4096).decode()
            finally:
                os.close(terminal)


class TestLogs:
    def test_for_a_person(self, skynet: Skynet) -> None:
        lines = skynet("logs", "--limit", "2").out.splitlines()
        assert len(lines) == 2
        assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z [A-Z]+ +[\w/]+: ", line) for line in lines)

    def test_for_a_script(self, skynet: Skynet) -> None:
        (line,) = skynet("logs", "--limit", "1", "--json").out.splitlines()
        assert json.loads(line)["_meta"]["logLevelName"] == "INFO"

    def test_follow(self, gateway: RunningGateway, skynet: Skynet) -> None:
        command = [*SKYNET, "logs", "--follow", "--limit", "1"]
        with subprocess.Popen(command, env=client_environment(gateway), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            first = process.stdout.readline()
            skynet("status")
            assert process.stdout.readline() != first
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_S) == Exit.INTERRUPTED


class TestReaching:
    def test_no_gateway(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        use_environment(monkeypatch, tmp_path / "home", SKYNET_GATEWAY_PORT="1")
        assert run_command(["status"]) == Exit.UNREACHABLE
        assert capsys.readouterr().err == (
            "error: the gateway is not running at ws://127.0.0.1:1\n  start it with: skynet gateway run\n"
        )
        assert not (tmp_path / "home").exists(), "a client that reaches nothing leaves nothing"
        assert run_command(["status", "--json"]) == Exit.UNREACHABLE
        error = json.loads(capsys.readouterr().out)["error"]
        assert (error["code"], error["exitCode"]) == ("gateway_unreachable", 3)

    def test_something_else_listens_there(self, models: str, skynet: Skynet) -> None:
        outcome = skynet("status", "--url", models.replace("http:", "ws:"), "--token", "x")
        assert outcome.code == Exit.UNREACHABLE

    def test_the_local_token_stays_here(self, gateway: RunningGateway, skynet: Skynet) -> None:
        outcome = skynet("status", "--url", gateway.url)
        assert outcome.code == Exit.NOT_ALLOWED
        assert "gateway token missing" in outcome.err
        assert skynet("status", "--url", gateway.url, "--token", gateway.token).code == Exit.OK

    def test_a_wrong_token(self, gateway: RunningGateway, skynet: Skynet) -> None:
        outcome = skynet("status", "--url", gateway.url, "--token", "wrong", "--json")
        assert outcome.code == Exit.NOT_ALLOWED
        error = json.loads(outcome.out)["error"]
        assert error["code"] == "AUTH_TOKEN_MISMATCH"
        assert error["message"] == "unauthorized: gateway token mismatch"
        assert error["hint"] == "give the gateway's token with --token"

    @pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ws://", "ws://h:0", "ws://u:p@h", "ws://[::1", "x"])
    def test_addresses_that_are_none(self, skynet: Skynet, url: str) -> None:
        outcome = skynet("status", "--url", url, "--token", "x")
        assert outcome.code == Exit.USAGE
        assert "is no gateway address" in outcome.err

    def test_a_token_is_not_sent_in_the_clear(self, skynet: Skynet) -> None:
        outcome = skynet("status", "--url", "ws://192.0.2.1:18789", "--token", "x")
        assert outcome.code == Exit.USAGE
        assert "in the clear" in outcome.err

    def test_a_damaged_identity(
        self,
        gateway: RunningGateway,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        (tmp_path / "identity").mkdir()
        (tmp_path / "identity" / "device.json").write_text("{}")
        use_environment(monkeypatch, tmp_path)
        assert run_command(["status", "--url", gateway.url, "--token", gateway.token]) == Exit.USAGE
        assert "holds no device identity" in capsys.readouterr().err
        assert (tmp_path / "identity" / "device.json").read_text() == "{}"


class TestConfig:
    def test_check(self, skynet: Skynet, gateway: RunningGateway) -> None:
        assert skynet("config", "check").out == f"ok: {gateway.home / 'skynet.toml'}\n"

    def test_check_with_problems(self, skynet: Skynet, tmp_path: Path) -> None:
        file = tmp_path / "bad.toml"
        file.write_text("[gateway]\nhots = 1\nport = -1")
        outcome = skynet("config", "check", "--config", str(file))
        assert outcome.code == Exit.USAGE
        assert f"{file}:2: gateway.hots: unknown key (did you mean host?)" in outcome.out
        problems = json.loads(skynet("config", "check", "--config", str(file), "--json").out)["problems"]
        assert (problems[0]["kind"], problems[0]["key"]) == ("unknown-key", "gateway.hots")
        assert skynet("status", "--config", str(file)).code == Exit.USAGE

    def test_show_has_no_secrets(self, skynet: Skynet) -> None:
        assert 'providers.mock.api_key\t"***"' in skynet("config", "show").out
        shown = json.loads(skynet("config", "show", "--json").out)
        assert shown["providers"]["mock"]["api_key"] == "***"


class TestParsing:
    @pytest.mark.parametrize(
        "arguments", [["--help"], ["--version"], ["agent", "--help"], ["gateway", "run", "--help"]]
    )
    def test_help(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run_command(arguments) == Exit.OK
        assert capsys.readouterr().out

    @pytest.mark.parametrize("arguments", [["nope"], ["agent"], ["sessions", "show"], ["status", "--nope"], ["chat"]])
    def test_usage(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run_command(arguments) == Exit.USAGE
        assert capsys.readouterr().err.startswith("error: ")

    def test_a_reader_that_goes_away(self, gateway: RunningGateway) -> None:
        command = f"{' '.join(SKYNET)} config show | head -n 1"
        result = subprocess.run(
            ["bash", "-c", command], env=client_environment(gateway), capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert result.stderr == ""


class TestGatewayRun:
    def test_first_start(self, tmp_path: Path) -> None:
        home = tmp_path / "state"
        with running_gateway(home) as gateway:
            assert re.match(r"Skynet [\d.]+ listens on ws://127\.0\.0\.1:\d+\n", gateway.said)
            assert f"State is kept in {home}\n" in gateway.said
            assert f"Gateway token: {gateway.token}\n" in gateway.said
            assert "offline assistant answers" in gateway.said
            assert "OPENAI_API_KEY" in gateway.said
            assert 'skynet agent -m "hello"' in gateway.said
            env = environment(home, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2])
            answer = subprocess.run([*SKYNET, "agent", "-m", "echo hi"], env=env, capture_output=True, text=True)
            assert (answer.returncode, "hi" in answer.stdout) == (0, True)
            token = gateway.token
        assert gateway.process.returncode == 0
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        with running_gateway(home) as again:
            assert token not in again.said
            assert again.token == token

    def test_a_bad_configuration(self, tmp_path: Path) -> None:
        result = run_gateway(tmp_path, "--port", "70000")
        assert result.returncode == Exit.USAGE
        assert "command line: gateway.port: 70000 is not allowed" in result.stderr

    def test_a_home_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        result = run_gateway(tmp_path / "file")
        assert result.returncode == Exit.USAGE
        assert result.stderr.startswith("error: ")

    def test_an_address_that_is_taken(self, gateway: RunningGateway, tmp_path: Path) -> None:
        result = run_gateway(tmp_path, "--port", gateway.url.rpartition(":")[2])
        assert result.returncode == Exit.FAILED
        assert "cannot listen on 127.0.0.1:" in result.stderr
        assert "Traceback" not in result.stderr

    def test_a_state_directory_that_is_in_use(self, gateway: RunningGateway) -> None:
        result = run_gateway(gateway.home, "--port", "0")
        assert result.returncode == Exit.FAILED
        assert str(gateway.process.pid) in result.stderr

    def test_exposed_without_a_token(self, tmp_path: Path) -> None:
        result = run_gateway(tmp_path, "--host", "0.0.0.0", "--port", "0")
        assert result.returncode == Exit.USAGE
        assert "refused (unsafe-no-token)" in result.stderr


def run_gateway(home: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """A start that fails."""
    command = [*SKYNET, "gateway", "run", *flags]
    return subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=TIMEOUT_S)


def client_environment(gateway: RunningGateway) -> dict[str, str]:
    return environment(gateway.home, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2], PYTHONUNBUFFERED="1")


def run_piped(gateway: RunningGateway, *arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SKYNET, *arguments],
        env=client_environment(gateway),
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def eventually(condition: object, *, interval_s: float = 0.05) -> None:
    assert callable(condition)
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(interval_s)
