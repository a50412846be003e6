"""``skynet approvals`` against a real gateway."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from skynet.cli.errors import Exit
from tests.skynet.cli.conftest import RunningGateway, Skynet
from tests.support.client import open_client


def ask(gateway: RunningGateway, *argv: str, **params: Any) -> str:
    """Have a client ask whether a command may run; the question's id."""

    async def run() -> str:
        values = {"command": "x", "commandArgv": argv, "host": "gateway", "twoPhase": True, **params}
        async with open_client(gateway.url, token=gateway.token) as client:
            return str((await client.call("exec.approval.request", values))["id"])

    return asyncio.run(run())


def test_a_command_is_listed_and_allowed_once(skynet: Skynet, gateway: RunningGateway) -> None:
    approval_id = ask(gateway, "echo", "a b", "\u202e\x1b[2J\n")
    line = next(line for line in skynet("approvals", "list").out.splitlines() if approval_id[-8:] in line)
    assert "echo 'a b' '\\u202e\\x1b[2J\\n'\tgateway\t" in line and "you may decide" in line
    assert approval_id in skynet("approvals", "list", "--json").out
    outcome = skynet("approvals", "allow", approval_id[-8:])
    assert (outcome.code, outcome.out) == (Exit.OK, "allow-once: echo 'a b' '\\u202e\\x1b[2J\\n'\n")
    again = skynet("approvals", "allow", approval_id[-8:])
    assert again.code == Exit.FAILED and f"no ids end in '{approval_id[-8:]}'" in again.err
    assert "see: skynet approvals list" in again.err


def test_a_command_is_denied(skynet: Skynet, gateway: RunningGateway) -> None:
    approval_id = ask(gateway, "reboot")
    assert skynet("approvals", "deny", f"…{approval_id[-8:]}").out == "deny: reboot\n"
    assert json.loads(skynet("approvals", "deny", ask(gateway, "reboot"), "--json").out) == {"ok": True}


def test_what_is_allowed_for_good_can_be_taken_back(skynet: Skynet, gateway: RunningGateway) -> None:
    assert skynet("approvals", "allow", ask(gateway, "git", "push", "*"), "--always").code == Exit.OK
    (grant,) = json.loads(skynet("approvals", "grants", "list", "--json").out)["grants"]
    assert json.loads(grant["pattern"]) == ["git", "push", "\\*"]
    line = skynet("approvals", "grants", "list", "--person", "Owner").out
    assert line.startswith(f"{grant['id'][-8:]}\tgit push '*'\tgateway\t")
    assert skynet("approvals", "grants", "remove", grant["id"][-8:]).out.startswith("asked about again: git push")
    assert json.loads(skynet("approvals", "grants", "list", "--json").out) == {"grants": []}
    assert skynet("approvals", "grants", "remove", "none").code == Exit.FAILED
