import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from skynet_protocol import events
from skynet_protocol.events import EVENT_SCOPES, EVENTS, is_droppable


def wire(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


def test_names_in_openclaws_order():
    assert len(EVENTS) == len(set(EVENTS)) == 26
    assert EVENTS[:5] == ("connect.challenge", "agent", "chat", "presence", "tick")
    assert EVENTS[16:19] == ("exec.approval.requested", "exec.approval.resolved", "update.available")
    assert EVENTS[19:] == (
        "budget.warning",
        "approvals.requested",
        "approvals.resolved",
        "guardian.alert",
        "memory.read",
        "terminal.output",
        "terminal.exit",
    )


def test_guarded_events():
    assert {name: scope for name, scope in EVENT_SCOPES.items() if name not in EVENTS} == {}
    for name in EVENTS:
        if name.startswith("exec.approval."):
            assert EVENT_SCOPES[name] == "operator.approvals"
        elif name.startswith(("device.pair.", "node.pair.")):
            assert EVENT_SCOPES[name] == "operator.pairing"
        else:
            assert name not in EVENT_SCOPES


@pytest.mark.parametrize("name", EVENTS)
def test_which_events_a_slow_client_may_miss(name):
    kept = {"connect.challenge", "agent", "chat", "health", "shutdown", "node.invoke.request"}
    kept |= {"terminal.output", "terminal.exit"}  # not again, and their sender waits for slow readers
    assert is_droppable(name) == (name not in kept)
    assert is_droppable(name, "final") == (name not in kept)


def test_of_a_chat_only_deltas_may_be_missed():
    assert is_droppable("chat", "delta")
    assert not any(is_droppable("chat", state) for state in ("final", "aborted", "error", None))
    assert not is_droppable("agent", "delta")


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (events.ConnectChallenge(nonce="n", ts=1), {"nonce": "n", "ts": 1}),
        (events.TickEvent(ts=1), {"ts": 1}),
        (
            events.ShutdownEvent(reason="gateway stopping", restart_expected_ms=None),
            {"reason": "gateway stopping", "restartExpectedMs": None},
        ),
        (events.PresenceEvent(presence=Raw(b"[]")), {"presence": []}),
        (
            events.DevicePairRequestedEvent(request_id="r", device_id="d", public_key="k", ts=1, is_repair=False),
            {"requestId": "r", "deviceId": "d", "publicKey": "k", "ts": 1, "isRepair": False},
        ),
        (
            events.DevicePairResolvedEvent(request_id="r", device_id="d", decision="approved", ts=1),
            {"requestId": "r", "deviceId": "d", "decision": "approved", "ts": 1},
        ),
        (
            events.HeartbeatEvent(ts=1, status="ok-empty", duration_ms=5, has_media=False),
            {"ts": 1, "status": "ok-empty", "durationMs": 5, "hasMedia": False},
        ),
        (
            events.CronEvent(job_id="j", action="added", next_run_at_ms=7),
            {"jobId": "j", "action": "added", "nextRunAtMs": 7},
        ),
        (
            events.ChatEvent(run_id="r", session_key="agent:main:main", seq=2, state="final"),
            {"runId": "r", "sessionKey": "agent:main:main", "seq": 2, "state": "final"},
        ),
        (
            events.ChatEvent(run_id="r", session_key="k", seq=2, state="error", error_message="x"),
            {"runId": "r", "sessionKey": "k", "seq": 2, "state": "error", "errorMessage": "x"},
        ),
        (
            events.AgentEvent(run_id="r", seq=1, stream="tool", ts=5, data=Raw(b'{"phase":"x"}')),
            {"runId": "r", "seq": 1, "stream": "tool", "ts": 5, "data": {"phase": "x"}},
        ),
        (events.LifecycleStart(started_at=1), {"phase": "start", "startedAt": 1}),
        (events.LifecycleEnd(ended_at=1), {"phase": "end", "endedAt": 1}),
        (events.LifecycleEnd(ended_at=1, aborted=True), {"phase": "end", "endedAt": 1, "aborted": True}),
        (events.LifecycleError(error="x", ended_at=1), {"phase": "error", "error": "x", "endedAt": 1}),
        (events.AssistantData(text="ab", delta="b"), {"text": "ab", "delta": "b"}),
        (
            events.ToolStart(name="exec", tool_call_id="c", args={"command": "ls"}),
            {"phase": "start", "name": "exec", "toolCallId": "c", "args": {"command": "ls"}},
        ),
        (
            events.ToolUpdate(name="exec", tool_call_id="c"),
            {"phase": "update", "name": "exec", "toolCallId": "c"},
        ),
        (
            events.ToolResult(name="exec", tool_call_id="c", is_error=False, result="x"),
            {"phase": "result", "name": "exec", "toolCallId": "c", "isError": False, "result": "x"},
        ),
        (events.CompactionStart(), {"phase": "start"}),
        (events.CompactionEnd(will_retry=False), {"phase": "end", "willRetry": False}),
    ],
)
def test_payloads(payload, expected):
    assert wire(payload) == expected


def test_a_delta_carries_the_whole_text_so_far():
    event = events.ChatEvent(
        run_id="r", session_key="k", seq=2, state="delta", message=events.assistant_message("w0 w1", 9)
    )
    assert wire(event)["message"] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "w0 w1"}],
        "timestamp": 9,
    }
