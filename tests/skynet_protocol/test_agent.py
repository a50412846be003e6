import json

import msgspec
import pytest
from msgspec import UNSET

from skynet_protocol import agent
from skynet_protocol.errors import RequestError
from skynet_protocol.params import decode_params

PARAMS = msgspec.json.Decoder(agent.AgentParams)


def decode(**fields: object) -> agent.AgentParams:
    return decode_params(json.dumps({"message": "hi", "idempotencyKey": "k", **fields}).encode(), PARAMS, "agent")


def test_the_least_that_runs():
    params = decode()
    assert (params.message, params.idempotency_key, params.session_key, params.deliver) == ("hi", "k", "", False)
    assert params.timeout is UNSET
    assert params.input_provenance is UNSET


def test_every_field_of_openclaws():
    texts = "agentId to replyTo sessionId sessionKey thinking channel replyChannel accountId replyAccountId threadId"
    texts += " groupId groupChannel groupSpace lane extraSystemPrompt label spawnedBy"
    params = decode(
        **dict.fromkeys(texts.split(), "x"),
        deliver=True,
        bestEffortDeliver=True,
        timeout=0,
        attachments=[{"content": "x"}],
        inputProvenance={"kind": "inter_session", "sourceSessionKey": "s", "sourceChannel": "c", "sourceTool": "t"},
    )
    assert params.reply_account_id == params.group_space == params.extra_system_prompt == params.spawned_by == "x"
    assert (params.timeout, params.best_effort_deliver) == (0, True)
    assert params.input_provenance is not UNSET
    assert params.input_provenance.source_tool == "t"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"message": ""}, "at /message: must NOT have fewer than 1 characters"),
        ({"idempotencyKey": ""}, "at /idempotencyKey: must NOT have fewer than 1 characters"),
        ({"agentId": ""}, "at /agentId: must NOT have fewer than 1 characters"),
        ({"label": "x" * 65}, "at /label: must NOT have more than 64 characters"),
        ({"label": None}, "at /label: must be string"),
        ({"timeout": -1}, "at /timeout: must be >= 0"),
        ({"timeout": 1.5}, "at /timeout: must be integer"),
        ({"idempotencyKey": "k" * 513}, "at /idempotencyKey: must NOT have more than 512 characters"),
        ({"inputProvenance": {}}, "at /inputProvenance: must have required property 'kind'"),
        (
            {"inputProvenance": {"kind": "external_user", "x": 1}},
            "at /inputProvenance: unexpected property 'x'",
        ),
        ({"model": "x"}, "at root: unexpected property 'model'"),
    ],
)
def test_bad_params(fields, problem):
    with pytest.raises(RequestError) as caught:
        decode(**fields)
    assert caught.value.message == f"invalid agent params: {problem}"


def test_the_other_methods_params():
    wait = decode_params(b'{"runId":"r"}', msgspec.json.Decoder(agent.AgentWaitParams), "agent.wait")
    assert wait.timeout_ms == 30_000
    identity = decode_params(None, msgspec.json.Decoder(agent.AgentIdentityParams), "agent.identity.get")
    assert (identity.agent_id, identity.session_key) == ("", "")
    listing = msgspec.json.Decoder(agent.AgentsListParams)
    decode_params(b"{}", listing, "agents.list")
    with pytest.raises(RequestError, match=r"invalid agents\.list params: at root: unexpected property 'foo'"):
        decode_params(b'{"foo":1}', listing, "agents.list")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            agent.AgentAccepted(run_id="r", accepted_at=5, status="accepted"),
            {"runId": "r", "status": "accepted", "acceptedAt": 5},
        ),
        (agent.AgentWaitResult(run_id="r", status="timeout"), {"runId": "r", "status": "timeout"}),
        (
            agent.AgentWaitResult(run_id="r", status="error", started_at=1, ended_at=2, error="x"),
            {"runId": "r", "status": "error", "startedAt": 1, "endedAt": 2, "error": "x"},
        ),
        (
            agent.AgentIdentityResult(agent_id="main", name="Assistant", avatar="A"),
            {"agentId": "main", "name": "Assistant", "avatar": "A"},
        ),
        (
            agent.AgentsListResult(
                default_id="main",
                main_key="main",
                scope="per-sender",
                agents=(agent.AgentSummary(id="main", identity=agent.AgentIdentity(avatar_url="u")),),
            ),
            {
                "defaultId": "main",
                "mainKey": "main",
                "scope": "per-sender",
                "agents": [{"id": "main", "identity": {"avatarUrl": "u"}}],
            },
        ),
    ],
)
def test_results(result, expected):
    assert json.loads(msgspec.json.encode(result)) == expected


def test_a_final_answer():
    result = agent.AgentResult(
        run_id="r",
        status="ok",
        summary="completed",
        result=agent.AgentOutcome(
            payloads=(agent.AgentPayload(text="hello", media_url=None),),
            meta=agent.AgentMeta(
                duration_ms=56,
                aborted=False,
                agent_meta=agent.AgentRunMeta(
                    session_id="s",
                    provider="mock",
                    model="mock-1",
                    usage=agent.AgentUsage(input=100, output=20, total=120),
                    last_call_usage=agent.AgentUsage(input=100, output=20, cache_read=0, cache_write=0, total=120),
                    prompt_tokens=100,
                ),
            ),
        ),
    )
    assert json.loads(msgspec.json.encode(result)) == {
        "runId": "r",
        "status": "ok",
        "summary": "completed",
        "result": {
            "payloads": [{"text": "hello", "mediaUrl": None}],
            "meta": {
                "durationMs": 56,
                "agentMeta": {
                    "sessionId": "s",
                    "provider": "mock",
                    "model": "mock-1",
                    "usage": {"input": 100, "output": 20, "total": 120},
                    "lastCallUsage": {"input": 100, "output": 20, "cacheRead": 0, "cacheWrite": 0, "total": 120},
                    "promptTokens": 100,
                },
                "aborted": False,
            },
        },
    }
