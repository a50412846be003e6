"""Which commands may run: ``openclaw approvals`` over our file, and questions that its calls ask and answer."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.gateway import Gateway
from interop.openclaw import COMMAND_TIMEOUT_S, OpenClaw, call
from interop.processes import until

GATEWAY = ("--gateway", "--json")


@pytest.fixture
def file(gateway: Gateway) -> Iterator[Path]:
    """The gateway's file, which is gone afterwards."""
    path = gateway.home / "exec-approvals.json"
    yield path
    path.unlink(missing_ok=True)


def patterns(file: dict[str, Any], agent: str = "*") -> list[str]:
    return [entry["pattern"] for entry in file["agents"][agent].get("allowlist", [])]


def test_approvals_get_and_set(owner: OpenClaw, file: Path, tmp_path: Path) -> None:
    shown = owner.run("approvals", "get", *GATEWAY).value
    assert (shown["path"], shown["exists"]) == (str(file), False)
    new = {"version": 1, "defaults": {"security": "allowlist", "ask": "on-miss"}, "agents": {}}
    (tmp_path / "new.json").write_text(json.dumps(new))
    put = owner.run("approvals", "set", "--file", str(tmp_path / "new.json"), *GATEWAY).value
    assert put["exists"] is True and put["file"] == new
    assert json.loads(file.read_text()) == new and file.stat().st_mode & 0o777 == 0o600
    assert owner.run("approvals", "get", *GATEWAY).value == put
    table = owner.run("approvals", "get", "--gateway")
    assert table.ok and "allowlist" in table.flat and put["hash"][:8] in table.flat, str(table)


def test_approvals_allowlist_add_and_remove_keep_the_rest(owner: OpenClaw, file: Path) -> None:
    file.write_text(
        json.dumps(
            {
                "version": 1,
                "socket": {"path": "/run/openclaw.sock", "token": "interop-socket-secret"},
                "agents": {"main": {"allowlist": [{"pattern": "/usr/bin/git"}]}},
                "ofAnotherVersion": True,
            }
        )
    )
    added = owner.run("approvals", "allowlist", "add", "/usr/bin/rg", *GATEWAY)
    assert "interop-socket-secret" not in added.out
    assert patterns(added.value["file"]) == ["/usr/bin/rg"] and patterns(added.value["file"], "main") == [
        "/usr/bin/git"
    ]
    more = owner.run("approvals", "allowlist", "add", "--agent", "main", '["git","push","*"]', *GATEWAY).value
    assert patterns(more["file"], "main") == ["/usr/bin/git", '["git","push","*"]']
    removed = owner.run("approvals", "allowlist", "remove", "--agent", "main", "/usr/bin/git", *GATEWAY).value
    assert patterns(removed["file"], "main") == ['["git","push","*"]']
    written = json.loads(file.read_text())
    assert written["socket"] == {"path": "/run/openclaw.sock", "token": "interop-socket-secret"}
    assert written["ofAnotherVersion"] is True


def test_a_file_that_makes_no_sense_is_refused(owner: OpenClaw, file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"version":1,"defaults":{"security":"everything"}}')
    refused = owner.run("approvals", "set", "--file", str(bad), *GATEWAY)
    assert refused.code == 1 and "at /file/defaults/security: must be one of deny, allowlist, full" in refused.err
    assert not file.exists()


def test_the_words_of_a_conflict(owner: OpenClaw, file: Path) -> None:
    file.write_text('{"version":1}')
    new = {"file": {"version": 1}}
    refused = owner.run(*call("exec.approvals.set", new))
    assert refused.refusal == "exec approvals base hash required; re-run exec.approvals.get and retry"
    refused = owner.run(*call("exec.approvals.set", {**new, "baseHash": "other"}))
    assert refused.refusal == "exec approvals changed since last load; re-run exec.approvals.get and retry"


@pytest.mark.parametrize("decision", ["allow-once", "deny"])
def test_a_command_is_asked_about_and_decided(owner: OpenClaw, decision: str) -> None:
    approval_id = str(uuid.uuid4())
    params = {"id": approval_id, "command": "echo hi", "commandArgv": ["echo", "hi"], "timeoutMs": 60_000}
    asking = subprocess.Popen(
        owner.argv(*call("exec.approval.request", params), "--timeout", "60000"),
        env=owner.env(),
        cwd=owner.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: approval_id in json.dumps(owner.call("exec.approval.list")), COMMAND_TIMEOUT_S, "asked")
        (waiting,) = owner.call("exec.approval.list")["approvals"]
        assert waiting["request"]["command"] == "echo hi" and waiting["decidable"] is True
        refused = owner.run(*call("exec.approval.resolve", {"id": approval_id, "decision": "maybe"}))
        assert refused.refusal == "invalid decision"
        resolve = {"id": approval_id, "decision": decision}
        assert owner.call("exec.approval.resolve", resolve) == {"ok": True}
        out, err = asking.communicate(timeout=COMMAND_TIMEOUT_S)
        assert asking.returncode == 0, err
        assert (json.loads(out)["id"], json.loads(out)["decision"]) == (approval_id, decision)
        assert owner.run(*call("exec.approval.resolve", resolve)).refusal == "unknown approval id"
    finally:
        asking.kill()
        asking.communicate()


def test_a_question_that_nobody_answers_expires(owner: OpenClaw) -> None:
    answer = owner.call("exec.approval.request", {"command": "echo hi", "timeoutMs": 50})
    assert answer["decision"] is None and answer["expiresAtMs"] - answer["createdAtMs"] == 50
    for params, words in (
        ({"command": "ls", "host": "node"}, "nodeId is required for host=node"),
        ({"command": "ls", "host": "node", "nodeId": "n"}, "commandArgv is required for host=node"),
    ):
        assert owner.run(*call("exec.approval.request", params)).refusal == words
    refused = owner.run(*call("exec.approval.waitDecision", {"id": "none"}))
    assert refused.refusal == "approval expired or not found"
