"""``openclaw agent``: one turn through our gateway, never through the agent built into the client."""

from __future__ import annotations

from interop.models import Models
from interop.openclaw import OpenClaw, Outcome


def not_embedded(outcome: Outcome) -> bool:
    """The client had no need to answer by itself."""
    return "falling back to embedded" not in outcome.err


def test_agent_prints_the_answer_of_our_gateway_s_model(first_run: Outcome, models: Models) -> None:
    assert not_embedded(first_run), str(first_run)
    value = first_run.value
    assert (value["status"], value["summary"]) == ("ok", "completed")
    (payload,) = value["result"]["payloads"]
    assert (payload["text"], payload["mediaUrl"]) == ("w0 w1 w2 w3 w4", None)
    meta = value["result"]["meta"]
    assert meta["aborted"] is False
    assert (meta["agentMeta"]["provider"], meta["agentMeta"]["model"]) == ("mock", "mock-1")
    usage = meta["agentMeta"]["usage"]
    assert (usage["input"], usage["output"], usage["total"]) == (100, 5, 105)
    (request,) = models.requests("tokens=5")
    assert (request["model"], request["stream"]) == ("mock-1", True)


def test_agent_with_a_session_id_keeps_one_conversation(owner: OpenClaw, models: Models) -> None:
    first = owner.run("agent", "--session-id", "s1", "--message", "say=hello there")
    assert first.ok and not_embedded(first), str(first)
    assert first.out.strip() == "hello there"
    second = owner.run("agent", "--session-id", "s1", "--message", "say=hello again", "--json")
    assert not_embedded(second), str(second)
    assert second.value["result"]["payloads"][0]["text"] == "hello again"
    (request,) = models.requests("say=hello again")
    spoken = [message["role"] for message in request["messages"] if message["role"] != "system"]
    assert spoken == ["user", "assistant", "user"]
    assert "hello there" in str(request["messages"])
    assert second.value["result"]["meta"]["agentMeta"]["sessionId"] == "s1"


def test_agent_shows_the_model_s_failure_and_does_not_answer_by_itself(owner: OpenClaw, models: Models) -> None:
    outcome = owner.run("agent", "--session-id", "failing", "--message", "fail=503", "--json")
    assert not_embedded(outcome), str(outcome)
    (payload,) = outcome.value["result"]["payloads"]
    assert "503" in payload["text"]
    assert models.requests("fail=503")


def test_agent_waits_for_a_slow_model(owner: OpenClaw) -> None:
    outcome = owner.run("agent", "--session-id", "slow", "--message", "first=3000 tokens=3")
    assert outcome.ok and not_embedded(outcome), str(outcome)
    assert outcome.out.strip() == "w0 w1 w2"
