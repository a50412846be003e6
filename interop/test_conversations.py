"""Sessions and chat, each followed through its life with ``openclaw gateway call``."""

from __future__ import annotations

from interop.models import Models
from interop.openclaw import OpenClaw, call
from interop.processes import until


def texts(history: dict[str, object]) -> list[tuple[str, str]]:
    """Role and text of each message of a ``chat.history`` result."""
    messages = history["messages"]
    assert isinstance(messages, list)
    found = []
    for message in messages:
        content = message["content"]
        text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
        found.append((message["role"], text))
    return found


def test_a_message_is_started_answered_and_never_run_twice(owner: OpenClaw, models: Models) -> None:
    key = "agent:main:interop-send"
    send = {"sessionKey": key, "message": "say=sent once only", "idempotencyKey": "send-1"}
    assert owner.call("chat.send", send) == {"runId": "send-1", "status": "started"}
    waited = owner.call("agent.wait", {"runId": "send-1", "timeoutMs": 5000})
    assert (waited["runId"], waited["status"]) == ("send-1", "ok")
    assert waited["startedAt"] <= waited["endedAt"]
    assert owner.call("chat.send", send) == {"runId": "send-1", "status": "ok"}
    history = owner.call("chat.history", {"sessionKey": key})
    assert texts(history) == [("user", "say=sent once only"), ("assistant", "sent once only")]
    assert len(models.requests("say=sent once only")) == 1
    injected = owner.call("chat.inject", {"sessionKey": key, "message": "a note", "label": "kitchen"})
    assert injected["ok"] is True and injected["messageId"]
    assert texts(owner.call("chat.history", {"sessionKey": key, "limit": 1})) == [("assistant", "[kitchen]\n\na note")]


def test_a_running_answer_is_aborted_and_what_came_is_kept(owner: OpenClaw, models: Models) -> None:
    key, gone = "agent:main:interop-abort", models.disconnects()
    send = {"sessionKey": key, "message": "tokens=2000 delay=50", "idempotencyKey": "abort-1"}
    assert owner.call("chat.send", send)["status"] == "started"
    assert owner.call("chat.send", send) == {"runId": "abort-1", "status": "in_flight"}
    assert owner.call("chat.abort", {"sessionKey": key, "runId": "abort-1"}) == {
        "ok": True,
        "aborted": True,
        "runIds": ["abort-1"],
    }
    until(lambda: models.disconnects() > gone, 10, "the request to the model ended")
    assert owner.call("chat.abort", {"sessionKey": key}) == {"ok": True, "aborted": False, "runIds": []}
    history = owner.call("chat.history", {"sessionKey": key})
    assert ("user", "tokens=2000 delay=50") in texts(history)
    partial = [text for role, text in texts(history) if role == "assistant"]
    assert partial and partial[-1].startswith("w0 w1 ")


def test_a_stop_word_aborts(owner: OpenClaw) -> None:
    key = "agent:main:interop-stop"
    owner.call("chat.send", {"sessionKey": key, "message": "tokens=2000 delay=51", "idempotencyKey": "stop-1"})
    stopped = owner.call("chat.send", {"sessionKey": key, "message": "please stop", "idempotencyKey": "stop-2"})
    assert stopped == {"ok": True, "aborted": True, "runIds": ["stop-1"]}


def test_a_session_is_patched_found_reset_compacted_and_deleted(owner: OpenClaw) -> None:
    key = "agent:main:interop-life"
    accepted = owner.call("agent", {"sessionKey": key, "message": "tokens=4", "idempotencyKey": "life-1"})
    assert (accepted["runId"], accepted["status"]) == ("life-1", "accepted")
    final = owner.call(
        "agent", {"sessionKey": key, "message": "tokens=4", "idempotencyKey": "life-1"}, "--expect-final"
    )
    assert final["result"]["payloads"][0]["text"] == "w0 w1 w2 w3"
    session_id = final["result"]["meta"]["agentMeta"]["sessionId"]

    patched = owner.call(
        "sessions.patch", {"key": key, "label": "Interop life", "thinkingLevel": "off", "model": "mock/mock-1"}
    )
    assert (patched["ok"], patched["key"]) == (True, key)
    assert (patched["entry"]["sessionId"], patched["entry"]["label"]) == (session_id, "Interop life")
    assert patched["resolved"] == {"modelProvider": "mock", "model": "mock-1"}
    assert owner.call("sessions.resolve", {"label": "Interop life"}) == {"ok": True, "key": key}
    taken = owner.run(*call("sessions.patch", {"key": "agent:main:another", "label": "Interop life"}))
    assert taken.refusal == "label already in use: Interop life"

    compacted = owner.call("sessions.compact", {"key": key})
    assert (compacted["ok"], compacted["key"], compacted["compacted"]) == (True, key, False)
    assert owner.call("sessions.compact", {"key": key, "maxLines": 1})["compacted"] is True

    reset = owner.call("sessions.reset", {"key": key, "reason": "new"})
    assert (reset["ok"], reset["key"], reset["entry"]["label"]) == (True, key, "Interop life")
    assert reset["entry"]["sessionId"] != session_id
    assert owner.call("chat.history", {"sessionKey": key})["messages"] == []

    deleted = owner.call("sessions.delete", {"key": key})
    assert (deleted["ok"], deleted["key"], deleted["deleted"]) == (True, key, True)
    assert owner.call("sessions.delete", {"key": key})["deleted"] is False
    assert owner.call("sessions.list", {"search": "interop-life"})["sessions"] == []


def test_a_system_event_is_seen_in_presence_and_heartbeats_are_switched(owner: OpenClaw) -> None:
    event = {
        "text": "Node: kitchen (192.0.2.7) · mode test",
        "instanceId": "kitchen-1",
        "host": "kitchen",
        "mode": "test",
    }
    assert owner.call("system-event", event) == {"ok": True}
    (entry,) = (each for each in owner.call("system-presence") if each.get("instanceId") == "kitchen-1")
    assert (entry["host"], entry["mode"], entry["text"]) == ("kitchen", "test", event["text"])
    assert owner.call("set-heartbeats", {"enabled": False}) == {"ok": True, "enabled": False}
    assert owner.call("set-heartbeats", {"enabled": True}) == {"ok": True, "enabled": True}


def test_a_repeated_key_of_agent_answers_with_the_first_result(owner: OpenClaw, models: Models) -> None:
    params = {
        "sessionKey": "agent:main:interop-repeat",
        "message": "say=only once please",
        "idempotencyKey": "repeat-1",
    }
    first = owner.call("agent", params, "--expect-final")
    again = owner.call("agent", params, "--expect-final")
    assert (
        again["result"]["payloads"] == first["result"]["payloads"] == [{"text": "only once please", "mediaUrl": None}]
    )
    assert len(models.requests("say=only once please")) == 1
