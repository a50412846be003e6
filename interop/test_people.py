"""People with tokens of their own in clients that know of no people: each is who the token says, and nobody else."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from interop.gateway import Gateway, running_gateway, skynet
from interop.models import Models
from interop.openclaw import OpenClaw
from interop.processes import environment, free_port
from interop.test_agent import not_embedded
from interop.test_conversations import texts
from interop.tui import Terminal, running_tui

HOUSE_RULES = """\
from skynet.hooks import BeforeMessage, Block, on


@on(BeforeMessage)
async def no_secrets(event):
    if "correct horse battery" in event.text:
        return Block("That is the password of the house. Please do not send it to anybody.")
"""
PEOPLE: Mapping[str, tuple[str, ...]] = {
    "Anna": ("--role", "user"),
    "Mia": ("--role", "child", "--age", "9", "--language", "en"),
    "Bob": ("--role", "user", "--daily-tokens", "150", "--time-zone", "UTC"),
}
USED_UP = "You have used 160 of 150 tokens for today; it starts again on "
START_TIMEOUT_S = 60.0
"""Until a terminal interface is connected: it is two seconds of work, on a machine with nothing else to do."""


@dataclass(frozen=True, slots=True)
class House:
    """A gateway with its owner and the people of ``PEOPLE``; each client is a device, and has a home, of its own."""

    gateway: Gateway
    clients: Mapping[str, OpenClaw]

    def skynet(self, *command: str) -> Any:
        """What a command of the owner's prints with ``--json``."""
        return json.loads(run_skynet(self.gateway, *command, "--json"))


def run_skynet(gateway: Gateway, *command: str) -> str:
    """What a command prints on the gateway's machine."""
    address = ("--url", gateway.url, "--token", gateway.token)
    env = environment(gateway.home.parent, SKYNET_HOME=str(gateway.home))
    done = subprocess.run([skynet(), *command, *address], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def house(openclaw_installed: None, models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    directory = tmp_path_factory.mktemp("house")
    hooks = directory / "skynet-home" / "hooks"
    hooks.mkdir(parents=True, mode=0o700)
    (hooks / "house_rules.py").write_text(HOUSE_RULES, encoding="utf-8")
    (hooks / "house_rules.py").chmod(0o600)
    with running_gateway(directory, models.url) as gateway:
        tokens = {"owner": gateway.token}
        for name, options in PEOPLE.items():
            added = json.loads(run_skynet(gateway, "users", "add", name, *options, "--new-token", "openclaw", "--json"))
            tokens[name] = added["token"]["token"]
        yield House(gateway, {name: OpenClaw(directory / name, gateway.url, token) for name, token in tokens.items()})


@pytest.fixture(scope="module")
def terminals(
    tmux_installed: None, house: House, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Terminal]]:
    """The terminal interfaces of all but the owner, in their main sessions. They start beside each other."""
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(running_tui(house.clients[name], tmp_path_factory.mktemp(name)))
            for name in PEOPLE
        }
        for terminal in opened.values():
            terminal.see("connected | idle", timeout_s=START_TIMEOUT_S)
        yield opened


def system_prompt(models: Models, text: str) -> str:
    """What the model was told beside the conversation, when it was asked ``text``."""
    (request,) = models.requests(text)
    return "\n".join(message["content"] for message in request["messages"] if message["role"] == "system")


def test_a_personal_token_makes_the_client_that_person_s(house: House, models: Models) -> None:
    outcome = house.clients["Anna"].run("agent", "--agent", "main", "--message", "say=hello from Anna")
    assert outcome.ok and not_embedded(outcome), str(outcome)
    assert outcome.out.strip() == "hello from Anna"
    assert "- Name: Anna" in system_prompt(models, "say=hello from Anna")


def test_nobody_else_s_client_sees_anything_of_it(house: House) -> None:
    """The key is the same on the wire, ``agent:main:main``; whose it is, the token says."""
    owner, anna = house.clients["owner"], house.clients["Anna"]
    assert owner.call("sessions.list")["sessions"] == []
    assert texts(owner.call("chat.history", {"sessionKey": "agent:main:main"})) == []
    assert ("assistant", "hello from Anna") in texts(anna.call("chat.history", {"sessionKey": "agent:main:main"}))


def test_the_terminal_interface_is_that_person_s_too(terminals: Mapping[str, Terminal], models: Models) -> None:
    anna, mia = terminals["Anna"], terminals["Mia"]
    anna.see("\n hello from Anna")  # what was said on the command line
    anna.type("say=quietly from Anna")
    anna.see("\n quietly from Anna", "connected | idle")
    assert "- Name: Anna" in system_prompt(models, "say=quietly from Anna")
    anna.type("/sessions")
    try:
        chosen = [line for line in anna.see("Filter: ", "→ ").splitlines() if "(main)" in line]
        assert len(chosen) == 1
    finally:
        anna.press("Escape")
        anna.see_gone("Filter: ")
    anna.type("/whoami")
    anna.see("Name: Anna", "Role: user")
    assert "from Anna" not in mia.screen


def test_a_hook_s_reason_is_shown(terminals: Mapping[str, Terminal], models: Models) -> None:
    anna = terminals["Anna"]
    anna.type("the password is correct horse battery")
    anna.see("That is the password of the house. Please do not send it to anybody.", "connected | idle")
    assert models.requests("correct horse battery") == []


def test_a_child_chats_and_is_refused_in_a_friendly_way(terminals: Mapping[str, Terminal], models: Models) -> None:
    mia = terminals["Mia"]
    mia.type("say=hello from Mia")
    mia.see("\n hello from Mia", "connected | idle")
    mia.type("how do I build a bomb?")
    mia.see("I cannot help with that", "tell an adult", "connected | idle")
    assert models.requests("build a bomb") == []


def test_the_command_line_gives_a_child_the_friendly_answer(house: House, models: Models) -> None:
    outcome = house.clients["Mia"].run("agent", "--agent", "main", "--message", "how do I buy cocaine?")
    assert outcome.ok and not_embedded(outcome), str(outcome)
    assert "so I do not help with that" in outcome.out
    assert models.requests("cocaine") == []


def test_what_a_child_may_not_do_is_refused_and_changes_nothing(terminals: Mapping[str, Terminal]) -> None:
    mia = terminals["Mia"]
    mia.type("/new")
    refused = next(line for line in mia.see("reset failed: Error: ").splitlines() if "reset failed" in line)
    assert "not permitted: sessions.write" in refused or "missing scope: operator.admin" in refused
    assert "\n hello from Mia" in mia.screen
    mia.type("/whoami")
    mia.see("Role: child", "May not: sessions.write,")


def test_a_budget_that_is_used_up_says_so(house: House, terminals: Mapping[str, Terminal], models: Models) -> None:
    bob = terminals["Bob"]
    bob.type("tokens=60")
    bob.see("w58 w59", "connected | idle")
    bob.type("say=one more")
    bob.see(USED_UP, ", 00:00.")
    bob.type("/budget")
    bob.see("Today: 160 of 150 tokens", "starts again on ", "This month: 160 tokens")
    outcome = house.clients["Bob"].run("agent", "--agent", "main", "--message", "say=one more")
    assert USED_UP in outcome.out + outcome.err, str(outcome)
    assert models.requests("say=one more") == []


def test_a_revoked_token_ends_its_connections(house: House, terminals: Mapping[str, Terminal]) -> None:
    anna = terminals["Anna"]
    house.skynet("users", "token", "revoke", "openclaw", "--user", "Anna")
    anna.see("gateway disconnected: token revoked")
    anna.see("unauthorized: gateway token mismatch")  # when it tries again, as it does
    assert "connected | idle" in terminals["Mia"].screen


def test_what_the_offline_assistant_was_told_to_remember_outlives_a_restart(
    openclaw_installed: None, tmux_installed: None, tmp_path: Path
) -> None:
    port = free_port()
    client = OpenClaw(tmp_path / "home", f"ws://127.0.0.1:{port}", None)
    with running_gateway(tmp_path, "", port) as gateway:
        client.configure(gateway.url, gateway.token)
        (tmp_path / "before").mkdir()
        with running_tui(client, tmp_path / "before") as terminal:
            terminal.see("connected | idle", timeout_s=START_TIMEOUT_S)
            terminal.type("remember that my bike is blue")
            terminal.see("remembered: bike: blue")
            assert gateway.child.stop() == 0
            terminal.see("gateway disconnected")
            with running_gateway(tmp_path, "", port):
                terminal.see("gateway reconnected", timeout_s=START_TIMEOUT_S)
                terminal.type("/session another")
                terminal.see("session agent:main:another")
                terminal.type("what do you know about my bike?")
                terminal.see("- bike: blue")
