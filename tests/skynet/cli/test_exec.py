"""``skynet exec`` and ``skynet jobs`` against a real gateway, in the real sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import psutil
import pytest

from skynet.cli.client import RequestFailed
from skynet.cli.errors import CliError, Exit
from skynet.cli.exec import command_line, exit_code, refused, signal_number
from tests.skynet.cli.conftest import SKYNET, TIMEOUT_S, RunningGateway, Skynet, environment
from tests.support.programs import needs

sandboxed = needs("bwrap")


def eventually(condition: object) -> None:
    """Return when ``condition()`` is true."""
    assert callable(condition)
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@sandboxed
def test_it_ends_as_the_command_does(skynet: Skynet) -> None:
    outcome = skynet("exec", "echo out; echo err >&2; exit 3")
    assert (outcome.code, outcome.out, outcome.err) == (3, "out\n", "err\n")
    assert skynet("exec", "true").code == Exit.OK
    assert skynet("exec", "kill -TERM $$").code == 128 + signal.SIGTERM
    late = skynet("exec", "--timeout", "0.3", "echo begun; sleep 50")
    assert (late.code, late.out) == (Exit.TIMED_OUT, "begun\n")
    assert "--timeout" in late.err


@sandboxed
def test_one_word_is_a_line_and_several_are_a_program(skynet: Skynet) -> None:
    assert skynet("exec", "echo a  b | tr a-z A-Z").out == "A B\n"
    assert skynet("exec", "printf", "%s|", "a  b", "$HOME", "-n").out == "a  b|$HOME|-n|"
    assert skynet("exec", "--", "printf", "%s|", "--json", "--cwd").out == "--json|--cwd|"
    skynet("exec", "mkdir -p sub")
    assert skynet("exec", "--cwd", "sub", "pwd").out == "/files/sub\n"


@sandboxed
def test_for_a_pipe_it_is_as_it_was_written(skynet: Skynet) -> None:
    assert skynet("exec", "printf '\\033[31mred\\033[0m'").out == "\x1b[31mred\x1b[0m"
    result = json.loads(skynet("exec", "--json", "printf '\\033[31mred\\033[0m'; exit 2").out)
    assert (result["stdout"], result["exitCode"], result["sandbox"]) == ("red", 2, "bubblewrap")
    cut = skynet("exec", "seq 100000")
    assert "characters were left out" in cut.err
    assert cut.code == Exit.OK


@sandboxed
def test_what_may_not_be_run(skynet: Skynet) -> None:
    """SK-184."""
    outcome = skynet("exec", "rm -rf /")
    assert outcome.code == Exit.BLOCKED
    assert outcome.err.startswith("error: ")
    error = json.loads(skynet("exec", "--json", "rm -rf /").out)["error"]
    assert (error["code"], error["exitCode"]) == ("COMMAND_BLOCKED", 126)
    assert skynet("exec", "--bg", "rm -rf /").code == Exit.BLOCKED


def test_what_makes_no_sense(skynet: Skynet) -> None:
    for arguments in ((), ("",), ("--timeout", "301", "ls"), ("--timeout", "0", "ls"), ("--bg", "--node", "n", "ls")):
        assert skynet("exec", *arguments).code == Exit.USAGE, arguments
    assert skynet("exec", "--cwd", "../..", "ls").code == Exit.FAILED


def test_an_option_that_there_is_not(skynet: Skynet) -> None:
    """Is not taken for the command; what follows the command is the command's own."""
    for arguments in (("--timout", "3", "ls"), ("--timout=3", "ls"), ("--cwd", "sub", "-x", "ls"), ("--", "--x")):
        outcome = skynet("exec", *arguments)
        assert (outcome.code, "unknown option: -" in outcome.err) == (Exit.USAGE, True), outcome
        assert "skynet exec --help" in outcome.err


@sandboxed
def test_a_job(skynet: Skynet) -> None:
    """SK-183."""
    job = skynet(
        "exec", "--bg", "echo begun; until [ -e go ]; do sleep 0.05; done; rm go; echo done; exit 4"
    ).out.strip()
    assert any(line.startswith(f"{job}\trunning") for line in skynet("jobs", "list").out.splitlines())
    assert [line.split("\t")[0] for line in skynet("jobs", "list", "--status", "running").out.splitlines()] == [job]
    skynet("exec", "touch go")
    followed = skynet("jobs", "output", "--follow", job)
    assert (followed.code, followed.out) == (4, "begun\ndone\n")
    assert skynet("jobs", "output", job).out == "begun\ndone\n"
    assert skynet("jobs", "output", job).code == Exit.OK
    whole = json.loads(skynet("jobs", "output", "--json", job).out)
    assert (whole["data"], whole["ended"], whole["exitCode"], whole["dropped"]) == ("begun\ndone\n", True, 4, 0)
    shown = dict(line.split("\t") for line in skynet("jobs", "show", job).out.splitlines())
    assert (shown["status"], shown["exit"], shown["job"]) == ("failed", "4", job)
    assert json.loads(skynet("jobs", "show", "--json", job).out)["job"]["exitCode"] == 4
    assert skynet("jobs", "kill", job).out.startswith("failed: ")


@sandboxed
def test_killing_a_job(skynet: Skynet) -> None:
    job = json.loads(skynet("exec", "--bg", "--json", "sleep", "5001").out)["job"]["jobId"]
    assert skynet("jobs", "kill", job).out == "killed: sleep 5001\n"
    assert skynet("jobs", "output", "-f", job).code == 128 + signal.SIGKILL
    assert skynet("jobs", "kill", "nothing").code == Exit.FAILED
    assert skynet("jobs", "show", "nothing").code == Exit.FAILED


@sandboxed
def test_ctrl_c_ends_the_command_too(gateway: RunningGateway) -> None:
    env = environment(gateway.home, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2])
    with subprocess.Popen([*SKYNET, "exec", "sleep 5002"], env=env, start_new_session=True) as process:
        eventually(lambda: sleeping("5002"))
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(TIMEOUT_S) == Exit.INTERRUPTED
    eventually(lambda: not sleeping("5002"))


def sleeping(word: str) -> bool:
    return any(
        list(process.info["cmdline"] or ())[-1:] == [word] and process.info["status"] != psutil.STATUS_ZOMBIE
        for process in psutil.process_iter(["cmdline", "status"])
        if "sleep" in " ".join(process.info["cmdline"] or ())
    )


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        ({"exitCode": 0}, 0),
        ({"exitCode": 255}, 255),
        ({"exitCode": 256}, 1),
        ({"exitCode": None, "signal": "SIGTERM"}, 143),
        ({"exitCode": None, "signal": "TERM"}, 143),
        ({"exitCode": None, "signal": "signal 99"}, 137),
        ({"exitCode": None}, 137),
        ({"exitCode": 0, "timedOut": True}, 124),
    ],
)
def test_exit_codes(ended: dict[str, object], code: int) -> None:
    assert exit_code(ended) == code


def test_small_things() -> None:
    assert signal_number("HUP") == 1
    assert command_line(["a b"]) == "a b"
    assert command_line(["a b", "c"]) == "'a b' c"
    with pytest.raises(CliError):
        command_line([" "])
    told = refused(RequestFailed("no", code="COMMAND_BLOCKED", details={"rule": "x.y"}))
    assert (told.exit_code, told.hint) == (Exit.BLOCKED, "rule x.y")
    other = RequestFailed("gone", code="NOT_FOUND")
    assert refused(other) is other
