"""Commands: what a model runs, as the terminal interface shows it, and what needs a yes of the person at it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.gateway import Gateway
from interop.models import Models
from interop.openclaw import OpenClaw, call
from interop.processes import until
from interop.test_tools import call as tool
from interop.tui import Terminal, running_tui
from tests.support.programs import needs

pytestmark = needs("bwrap")

SESSION = "agent:main:commands"


@pytest.fixture(scope="module")
def at_home(openclaw_installed: None, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> OpenClaw:
    """A client of the same person on a device of its own: the terminal interface gives its name to the device."""
    return OpenClaw(tmp_path_factory.mktemp("commands") / "home", gateway.url, gateway.token)


@pytest.fixture(scope="module")
def tui(tmux_installed: None, at_home: OpenClaw, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """On a session of its own, where tools are shown with what they gave. The tests follow each other in it."""
    with running_tui(at_home, tmp_path_factory.mktemp("tui"), "--session", "commands", width=240) as terminal:
        terminal.see("connected | idle", f"session {SESSION}")
        terminal.type("/verbose full")
        terminal.see(" | verbose full | ")
        yield terminal


def ask_in(tui: Terminal, word: str) -> str:
    """Have the model run what needs a yes; the end of the question's id, as the screen shows it."""
    tui.type(f"say=I look {tool('execute_command', command=f'env # {word}')} next-round say=that was {word}")
    return asked(tui)


def asked(tui: Terminal) -> str:
    """The end of the open question's id, as the notice in the tool's row has it."""
    found = re.search(r"waits for a yes: /approve (\w+) allow-once", tui.see("waits for a yes: /approve "))
    assert found is not None
    return found[1]


def last_result(models: Models, text: str) -> str:
    """What the model was told of its last call, in the run whose message has ``text``."""
    content = models.requests(text)[-1]["messages"][-1]["content"]
    assert isinstance(content, str)
    return content


def test_agent_runs_a_command_in_the_sandbox(owner: OpenClaw, models: Models) -> None:
    script = f"say=I ask {tool('execute_command', command='echo $((6*7)); pwd')} next-round say=it is known"
    outcome = owner.run("agent", "--session-id", "runs", "--message", script)
    assert outcome.ok and outcome.out == "I ask\nit is known\n", str(outcome)
    assert last_result(models, "say=I ask") == "42\n/files\n[exit code 0]"


def test_the_terminal_interface_shows_what_commands_give(tui: Terminal) -> None:
    both = f"{tool('execute_command', command='echo $((20+3))')} {tool('bash', command='x=$((40+5)); echo $x')}"
    tui.type(f"say=I run {both} next-round {tool('bash', command='echo kept $x')} next-round say=both ran")
    tui.see("Execute Command", "Bash", "\n 23", "\n 45", "\n kept 45", "\n both ran", "connected | idle")


def test_what_is_blocked_is_told(tui: Terminal) -> None:
    tui.type(f"say=I try {tool('execute_command', command='rm -rf /')} next-round say=it was refused")
    tui.see(" not run: rm of / is refused", "(rule destructive.remove-everything)", "\n it was refused")


def test_the_person_allows_it_while_the_run_waits(tui: Terminal) -> None:
    approval = ask_in(tui, "allowed")
    tui.type(f"/approve {approval} allow-once")
    tui.see("HOME=/files", "\n that was allowed")


def test_the_person_denies_it(tui: Terminal) -> None:
    approval = ask_in(tui, "denied")
    tui.type(f"/deny {approval}")
    tui.see("it was not allowed", "\n that was denied")


def test_another_client_of_the_person_decides_as_the_control_ui_does(tui: Terminal, owner: OpenClaw) -> None:
    ask_in(tui, "elsewhere")
    (waiting,) = owner.call("exec.approval.list")["approvals"]
    assert "# elsewhere" in waiting["request"]["command"] and waiting["decidable"] is True
    assert owner.call("exec.approval.resolve", {"id": waiting["id"], "decision": "allow-once"}) == {"ok": True}
    tui.see("\n that was elsewhere")


def test_the_session_s_levels(tui: Terminal, owner: OpenClaw) -> None:
    """``/elevated`` as the terminal interface sets it; ``execHost`` and ``execAsk`` as clients do."""
    tui.type("/elevated full")
    until(lambda: session(owner).get("elevatedLevel") == "full", 20, lambda: f"elevated\n{tui.screen}")
    tui.type(f"say=I go {tool('execute_command', command='echo $((300+1)); env | grep -c ^HOME=')} next-round say=out")
    tui.see("\n 301", "\n out")
    tui.type("/elevated off")
    until(lambda: session(owner).get("elevatedLevel") in (None, "off"), 20, lambda: f"not elevated\n{tui.screen}")
    for levels in ({"execHost": "sandbox", "execAsk": "always"}, {"execHost": None, "execAsk": None}):
        owner.call("sessions.patch", {"key": SESSION, **levels})
        if levels["execAsk"]:
            tui.type(f"say=I ask {tool('execute_command', command='echo quiet')} next-round say=loud")
            tui.type(f"/deny {asked(tui)}")
            tui.see("\n loud")


def session(owner: OpenClaw) -> dict[str, Any]:
    rows = owner.call("sessions.list", {"limit": 100})["sessions"]
    return next(row for row in rows if row["key"] == SESSION)


# By ``gateway call``


def test_a_command_a_job_and_a_terminal(owner: OpenClaw, gateway: Gateway, tmp_path: Path) -> None:
    ran = owner.call("terminal.exec", {"command": "echo hi; echo no >&2; exit 3"})
    assert (ran["stdout"], ran["stderr"], ran["exitCode"], ran["sandbox"]) == ("hi\n", "no\n", 3, "bubblewrap")
    job = owner.call("terminal.exec_bg", {"command": "echo begun; sleep 0.1; echo done"})["job"]
    output = owner.call("terminal.job_output", {"jobId": job["jobId"], "waitMs": 10_000})
    assert output["data"].startswith("begun\n")
    until(lambda: jobs(owner, job["jobId"])["status"] == "completed", 30, "a job that has ended")
    terminal = owner.call("terminal.create", {"shell": "sh", "cols": 80, "rows": 24})
    owner.call("terminal.write", {"terminalId": terminal["terminalId"], "data": "echo $((3*5))x; exit 7\n"})

    def shown() -> str:
        return str(owner.call("terminal.read", {"terminalId": terminal["terminalId"], "waitMs": 2000})["data"])

    until(lambda: "15x" in shown(), 30, "what the shell says")
    (row,) = owner.call("terminal.list")["terminals"]
    assert (row["terminalId"], row["cols"], row["rows"]) == (terminal["terminalId"], 80, 24)


def jobs(owner: OpenClaw, job_id: str) -> dict[str, Any]:
    return next(job for job in owner.call("terminal.job_list")["jobs"] if job["jobId"] == job_id)


def test_the_words_of_a_refusal(owner: OpenClaw) -> None:
    refused = owner.run(*call("terminal.exec", {"command": "rm -rf /"}))
    assert "rm of / is refused" in refused.refusal, str(refused)
