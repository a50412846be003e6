"""Connections our gateway refuses, and what the real client makes of it."""

from __future__ import annotations

import json

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from interop.gateway import Gateway
from interop.openclaw import Outcome, call

MISMATCH = "unauthorized: gateway token mismatch (set gateway.remote.token to match gateway.auth.token)"
MISMATCH_BACKEND = "unauthorized: gateway token mismatch (provide gateway auth token)"
MISSING = "unauthorized: gateway token missing (set gateway.remote.token to match gateway.auth.token)"


@pytest.mark.reads("health", client="stranger")
def test_a_wrong_token_fails_health(outcome: Outcome, gateway: Gateway) -> None:
    assert outcome.code == 1, str(outcome)
    assert f"gateway connect failed: Error: {MISMATCH_BACKEND}" in outcome.err
    assert f"gateway closed (1008): {MISMATCH_BACKEND}" in outcome.err
    assert f"Gateway target: {gateway.url}" in outcome.err
    assert outcome.out == ""


@pytest.mark.reads(*call("status"), client="stranger")
def test_a_wrong_token_fails_a_call_with_the_hint_for_the_command_line(outcome: Outcome) -> None:
    assert outcome.code == 1, str(outcome)
    assert f"Gateway call failed: Error: gateway closed (1008): {MISMATCH}" in outcome.err


@pytest.mark.reads("logs", "--limit", "1", client="stranger")
def test_a_wrong_token_reads_no_log(outcome: Outcome) -> None:
    assert outcome.code == 1, str(outcome)
    assert MISMATCH in outcome.err
    assert outcome.out == ""


@pytest.mark.reads("gateway", "probe", "--json", "--timeout", "20000", client="stranger")
def test_a_wrong_token_fails_the_probe(outcome: Outcome) -> None:
    assert outcome.code == 1, str(outcome)
    (target,) = (each for each in json.loads(outcome.out)["targets"] if each["kind"] == "configRemote")
    assert target["connect"]["ok"] is False
    assert MISMATCH_BACKEND in target["connect"]["error"]


@pytest.mark.reads("channels", "status", client="stranger")
def test_a_wrong_token_leaves_channels_status_to_the_configuration(outcome: Outcome) -> None:
    assert outcome.ok, str(outcome)
    assert "Gateway not reachable; showing config-only status." in outcome.out
    assert MISMATCH_BACKEND in outcome.err


@pytest.mark.reads(*call("health"), client="nobody")
def test_no_token_is_refused_by_name(outcome: Outcome) -> None:
    assert outcome.code == 1, str(outcome)
    assert f"gateway closed (1008): {MISSING}" in outcome.err


async def test_another_protocol_version_is_refused_and_closed_1002(gateway: Gateway) -> None:
    """The client of 2026.2.26 speaks version 3 only; a later one would say this."""
    params = {
        "minProtocol": 4,
        "maxProtocol": 4,
        "client": {"id": "cli", "version": "2027.1.1", "platform": "linux", "mode": "cli"},
        "auth": {"token": gateway.token},
    }
    async with connect(gateway.url) as socket:
        challenge = json.loads(await socket.recv())
        assert (challenge["event"], "seq" in challenge) == ("connect.challenge", False)
        await socket.send(json.dumps({"type": "req", "id": "1", "method": "connect", "params": params}))
        answer = json.loads(await socket.recv())
        assert (answer["id"], answer["ok"]) == ("1", False)
        assert answer["error"]["message"] == "protocol mismatch"
        assert answer["error"]["details"] == {"expectedProtocol": 3}
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1002, "protocol mismatch")
