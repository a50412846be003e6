"""``openclaw tui``, driven by its keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.gateway import Gateway
from interop.models import Models
from interop.openclaw import OpenClaw
from interop.processes import until
from interop.tui import Terminal, running_tui


@pytest.fixture(scope="module")
def tui(tmux_installed: None, owner: OpenClaw, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal interface on the session ``tui``, connected. The tests follow each other in it."""
    with running_tui(owner, tmp_path_factory.mktemp("tui"), "--session", "tui") as terminal:
        terminal.see("connected | idle", "session agent:main:tui")
        yield terminal


def test_start_shows_gateway_agent_and_session(tui: Terminal, gateway: Gateway) -> None:
    tui.see(f"openclaw tui - {gateway.url} - agent main", " - session tui", " | session tui")


def test_an_answer_streams_in(tui: Terminal, models: Models) -> None:
    tui.type("tokens=40 delay=100")
    growing = tui.see("w0 w1 w2", "streaming")
    assert "w39" not in growing
    done = tui.see("w38 w39", "connected | idle")
    assert "run error" not in done
    assert len(models.requests("tokens=40 delay=100")) == 1
    tui.see(" | session tui (openclaw-tui) | mock/mock-1 | tokens 100/128k (0%)")


def test_status_command(tui: Terminal) -> None:
    tui.type("/status")
    screen = tui.see("Gateway status", "Default model: mock-1 (128k ctx)", "Recent sessions:")
    assert "Active sessions: 0" not in screen
    assert "- agent:main:tui [direct] | " in screen


def test_sessions_command(tui: Terminal) -> None:
    tui.type("/sessions")
    try:
        screen = tui.see("Filter: ", "→ ")
        (chosen,) = (line for line in screen.splitlines() if "→ " in line)
        assert (
            "→ tokens=40 delay=100 " in chosen and " · w0 w1 w2 " in chosen
        )  # made of the first message; the last one
    finally:
        tui.press("Escape")
        tui.see_gone("Filter: ")


def test_a_level_is_set(tui: Terminal) -> None:
    tui.type("/verbose on")
    tui.see(" | mock/mock-1 | verbose on | ")


def test_a_command_the_gateway_answers_comes_to_its_end(tui: Terminal) -> None:
    tui.type("/whoami")
    tui.see("Role: admin", "connected | idle")


def test_a_model_failure_is_shown(tui: Terminal) -> None:
    tui.type("fail=500")
    tui.see("500", "connected | error")
    tui.type("say=still here")
    tui.see("still here", "connected | idle")


def test_new_command_empties_the_session(tui: Terminal) -> None:
    tui.type("/new")
    tui.see_gone("still here")
    tui.see("session agent:main:tui", "connected | idle")


def test_escape_aborts_a_slow_answer(tui: Terminal, models: Models) -> None:
    gone = models.disconnects()
    tui.type("tokens=3000 delay=60")
    tui.see("w0 w1 w2", "streaming")
    tui.press("Escape")
    tui.see("run aborted", "connected | aborted")
    until(lambda: models.disconnects() > gone, 10, "the request to the model ended")
    tui.type("say=after the abort")
    tui.see("after the abort", "connected | idle")


def test_a_message_sent_by_another_client_appears(tui: Terminal, owner: OpenClaw) -> None:
    params = {"sessionKey": "agent:main:tui", "message": "say=from next door", "idempotencyKey": "next-door"}
    assert owner.call("chat.send", params)["status"] == "started"
    tui.see("from next door")


def test_switching_sessions_keeps_each_one_s_text(tui: Terminal) -> None:
    tui.type("/session tui-two")
    tui.see("session agent:main:tui-two", " | session tui-two")
    tui.type("say=only in two")
    tui.see("only in two", "connected | idle")
    tui.type("/session tui")
    tui.see("session agent:main:tui", "after the abort")
    tui.see_gone("only in two")


def test_the_end(tui: Terminal) -> None:
    tui.type("/exit")
    until(lambda: not tui.alive, 10, lambda: f"the program to end\n{tui.screen}")


def test_a_wrong_token_is_shown(
    tmux_installed: None, gateway: Gateway, openclaw_installed: None, tmp_path: Path
) -> None:
    client = OpenClaw(tmp_path / "stranger", gateway.url, "wrong")
    with running_tui(client, tmp_path) as terminal:
        terminal.see("gateway disconnected", "unauthorized: gateway token mismatch")


def test_a_quick_first_answer_comes_to_its_end(tmux_installed: None, owner: OpenClaw, tmp_path: Path) -> None:
    """The client still draws when the answer comes. What it reads together with the acknowledgement it forgets."""
    for number in range(3):
        (directory := tmp_path / str(number)).mkdir()
        with running_tui(owner, directory, "--session", f"quick-{number}") as terminal:
            terminal.see("connected | idle")
            terminal.type(f"say=quick number {number}")
            terminal.see(f" quick number {number}")
            terminal.see("connected | idle", timeout_s=10)
