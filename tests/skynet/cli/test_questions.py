"""Commands that need a yes, while somebody waits for them in a real pseudo-terminal, or without one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import ptyprocess
import pytest

from skynet.cli.errors import Exit
from skynet.cli.questions import of_command, of_session, told
from tests.skynet.cli.conftest import SKYNET, TIMEOUT_S, RunningGateway, Skynet, environment
from tests.skynet.cli.test_exec import eventually
from tests.skynet.cli.test_terminal import Window
from tests.support.programs import needs

sandboxed = needs("bwrap")

QUESTION = r"Run it\? \[y\]es, \[a\]lways, \[N\]o: "
SCRIPT = 'say=looking tool=execute_command:{"command":"env"} next-round say=looked'


@contextmanager
def waiting(gateway: RunningGateway, *arguments: str) -> Iterator[Window]:
    """A command in a terminal of its own."""
    env = environment(gateway.home, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2], TERM="xterm")
    process = ptyprocess.PtyProcess.spawn([*SKYNET, *arguments], env=env, dimensions=(40, 100))
    try:
        yield Window(process)
    finally:
        process.close(force=True)


def piped(gateway: RunningGateway, *arguments: str) -> subprocess.Popen[str]:
    env = environment(gateway.home, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2])
    return subprocess.Popen(
        [*SKYNET, *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def no_question_stays(skynet: Skynet) -> None:
    eventually(lambda: not json.loads(skynet("approvals", "list", "--json").out)["approvals"])


@sandboxed
def test_exec_asks_and_runs_it(gateway: RunningGateway) -> None:
    """The command, where it would run, why that needs a yes, and the rule that says so."""
    with waiting(gateway, "exec", "env") as own:
        own.expect(
            "a command needs your yes.*command  env\r\n.*where    sandbox, in /files\r\n.*why .*environment.dump"
        )
        own.expect(QUESTION)
        own.type("perhaps\r")
        own.expect(QUESTION)
        own.type("YES \r")
        own.expect("HOME=/files\r\n")
        assert own.end() == Exit.OK


@sandboxed
@pytest.mark.parametrize("typed", ["\r", "n\r", "no\r", "\x04"])
def test_whatever_is_no_yes_is_a_no(gateway: RunningGateway, typed: str) -> None:
    with waiting(gateway, "exec", "env") as own:
        own.expect(QUESTION)
        own.type(typed)
        own.expect("error: .*it was not allowed")
        assert own.end() == Exit.BLOCKED


@sandboxed
def test_always_is_not_asked_again(gateway: RunningGateway, skynet: Skynet) -> None:
    with waiting(gateway, "exec", "env") as own:
        own.expect(QUESTION)
        own.type("a\r")
        own.expect("HOME=/files\r\n")
        assert own.end() == Exit.OK
    assert "HOME=/files\n" in skynet("exec", "env").out
    [grant] = json.loads(skynet("approvals", "grants", "list", "--json").out)["grants"]
    assert skynet("approvals", "grants", "remove", grant["id"]).code == Exit.OK


@sandboxed
def test_what_is_typed_before_a_question_answers_none(gateway: RunningGateway, skynet: Skynet) -> None:
    with waiting(gateway, "exec", "env") as own:
        own.type("y\ry\ry\r")
        own.expect(QUESTION)
        own.type("n\r")
        assert own.end() == Exit.BLOCKED


@sandboxed
def test_ctrl_c_gives_the_command_up(gateway: RunningGateway, skynet: Skynet) -> None:
    for arguments in (("exec", "env"), ("agent", "-m", SCRIPT, "--session", "ctrl-c")):
        with waiting(gateway, *arguments) as own:
            own.expect(QUESTION)
            own.type("\x03")
            assert own.end() == Exit.INTERRUPTED
        no_question_stays(skynet)


@sandboxed
@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_somebody_answers_elsewhere(gateway: RunningGateway, skynet: Skynet, decision: str) -> None:
    with waiting(gateway, "exec", "env") as own:
        own.expect(QUESTION)
        [question] = json.loads(skynet("approvals", "list", "--json").out)["approvals"]
        assert skynet("approvals", decision, question["id"]).code == Exit.OK
        own.expect(r"\r\n\[that was decided elsewhere, or too late\]\r\n")
        assert own.end() == (Exit.OK if decision == "allow" else Exit.BLOCKED)


@sandboxed
def test_agent_asks_in_the_middle_of_an_answer(gateway: RunningGateway) -> None:
    with waiting(gateway, "agent", "-m", SCRIPT, "--session", "asks") as own:
        own.expect(f"looking\r\n.*command  env\r\n.*{QUESTION}")
        own.type("y\r")
        own.expect("looked\r\n")
        assert own.end() == Exit.OK


@sandboxed
def test_two_questions_come_one_after_the_other(gateway: RunningGateway) -> None:
    two = f"{SCRIPT.split(' next')[0]} " + 'tool=execute_command:{"command":"printenv"} next-round say=looked'
    with waiting(gateway, "agent", "-m", two, "--session", "two") as own:
        first = own.expect(f"command  (env|printenv)\r\n.*?{QUESTION}")
        own.type("n\r")
        second = own.expect(f"command  (env|printenv)\r\n.*?{QUESTION}")
        own.type("y\r")
        own.expect("looked\r\n")
        assert own.end() == Exit.OK
    assert {first[1], second[1]} == {"env", "printenv"}


@sandboxed
def test_chat_asks_and_goes_on(gateway: RunningGateway, skynet: Skynet) -> None:
    prompt = r"\x1b\[\?2004h"
    with waiting(gateway, "chat", "--session", "chat-asks") as own:
        own.expect(prompt)
        own.type(f"{SCRIPT}\r")
        own.expect(QUESTION)
        own.type("y\r")
        own.expect(f"looked.*{prompt}")
        own.type(f"{SCRIPT}\r")
        own.expect(QUESTION)
        own.type("\x03")
        own.expect(rf"\[stopped\].*{prompt}")
        own.type("say=still here\r")
        own.expect(f"still here.*{prompt}")
        own.type("\x04")
        assert own.end() == Exit.OK
    no_question_stays(skynet)


@sandboxed
def test_a_terminal_asks_before_it_opens(gateway: RunningGateway) -> None:
    with waiting(gateway, "terminal", "--command", "env") as own:
        own.expect(QUESTION)
        own.type("y\r")
        own.expect("HOME=/files\r\n")
        assert own.end() == Exit.OK


@sandboxed
@pytest.mark.parametrize("arguments", [("exec", "env"), ("agent", "--json", "-m", SCRIPT, "--session", "piped")])
def test_without_a_terminal_it_says_how_to_answer(
    gateway: RunningGateway, skynet: Skynet, arguments: tuple[str, ...]
) -> None:
    with piped(gateway, *arguments) as process:
        assert process.stderr is not None and process.stdout is not None
        line = process.stderr.readline()
        assert line.startswith("[env waits for a yes: skynet approvals allow ")
        assert skynet("approvals", "allow", line.strip("]\n").split()[-1]).code == Exit.OK
        assert "HOME=/files" in process.stdout.read() or arguments[0] == "agent"
        assert process.wait(TIMEOUT_S) == Exit.OK


@sandboxed
def test_another_conversations_question_is_not_put(gateway: RunningGateway, skynet: Skynet) -> None:
    with (
        piped(gateway, "exec", "printenv") as other,
        waiting(gateway, "agent", "-m", SCRIPT, "--session", "own") as own,
    ):
        assert other.stderr is not None
        line = other.stderr.readline()
        own.expect(QUESTION)
        assert skynet("approvals", "deny", line.strip("]\n").split()[-1]).code == Exit.OK
        assert other.wait(TIMEOUT_S) == Exit.BLOCKED
        own.type("y\r")
        own.expect("looked\r\n")
        assert own.end() == Exit.OK


@pytest.mark.parametrize(
    ("session", "asked", "expected"),
    [
        ("main", "user:u:agent:main:main", True),
        ("Agent:main:Main", "user:u:agent:main:main", True),
        ("a:b", "user:u:agent:main:a:b", True),
        ("b", "user:u:agent:main:a:b", False),
        ("main", "user:u:agent:other:main", False),
        ("main", "group:g:agent:main:main", False),
        ("group:g:agent:main:main", "group:g:agent:main:main", True),
        ("group:h:agent:main:main", "group:g:agent:main:main", False),
        ("main", None, False),
        ("main", "main", False),
        ("", "user:u:agent:main:main", False),
    ],
)
def test_whose_question_it_is(session: str, asked: str | None, expected: bool) -> None:
    assert of_session(session)({"sessionKey": asked}) is expected


def test_nothing_of_a_command_is_hidden() -> None:
    shown = told({"command": "echo \u202e\x1b[2J\ncommand  ls", "host": "gateway", "reason": "a\nb", "rule": "x.y"})
    assert shown.splitlines() == [
        "[a command needs your yes]",
        "  command  echo \\u202e\\x1b[2J",
        "           command  ls",
        "  where    on the gateway's machine, outside of the sandbox",
        "  why      a\\nb (rule x.y)",
    ]
    assert "node 01234567" in told({"command": "ls", "host": "node", "nodeId": "0123456789"})
    assert of_command("ls")({"command": "ls"}) and not of_command("ls")({"command": "ls -l"})
