"""Stored entries as chat.history shows them: what is taken out, what is cut, and the limits of one answer."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.gateway import transcript
from skynet.gateway.transcript import display_message, history_messages, preview_items
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
    encode_message,
)
from skynet_memory.ids import EntryId, SessionId
from skynet_memory.transcripts import Entry, EntryKind


def entry(payload: bytes | dict[str, Any], kind: EntryKind = "message", number: int = 1) -> Entry:
    return Entry(
        id=EntryId(f"e{number}"),
        session_id=SessionId("s"),
        parent_id=None,
        kind=kind,
        payload=payload if isinstance(payload, bytes) else json.dumps(payload).encode(),
        created_at_ms=1_795_226_722_693,
        covered_by=None,
    )


def user(text: str) -> Entry:
    return entry(encode_message(UserMessage(content=[TextBlock(text=text)], timestamp=5)))


def assistant(*content: Any, **fields: Any) -> Entry:
    message = AssistantMessage(
        content=list(content),
        api="openai-completions",
        provider="mock",
        model="mock-1",
        stop_reason=fields.pop("stop_reason", "stop"),
        timestamp=6,
        **fields,
    )
    return entry(encode_message(message))


def shown(stored: Entry) -> Any:
    (message,) = history_messages([stored])
    return json.loads(bytes(message))


def test_a_persons_message() -> None:
    assert shown(user("hi")) == {"role": "user", "content": [{"type": "text", "text": "hi"}], "timestamp": 5}


def test_an_answer_with_thinking_and_a_call() -> None:
    stored = assistant(
        ThinkingBlock(thinking="hm"),
        TextBlock(text="[[reply_to: 17]]on it[[audio_as_voice]]"),
        ToolCallBlock(id="call_1", name="exec", arguments={"command": "ls"}),
        stop_reason="toolUse",
        usage=Usage(input=1, output=2, cache_read=0, cache_write=0, total=3),
    )
    assert shown(stored) == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "on it"},
            {"type": "toolCall", "id": "call_1", "name": "exec", "arguments": {"command": "ls"}},
        ],
        "api": "openai-completions",
        "provider": "mock",
        "model": "mock-1",
        "stopReason": "toolUse",
        "timestamp": 6,
    }


def test_a_tool_result() -> None:
    message = ToolResultMessage(
        tool_call_id="c", tool_name="exec", content=[TextBlock(text="[[reply_to:1]]")], is_error=True, timestamp=7
    )
    assert shown(entry(encode_message(message), "tool_result")) == {
        "role": "toolResult",
        "toolCallId": "c",
        "toolName": "exec",
        "content": [{"type": "text", "text": "[[reply_to:1]]"}],
        "isError": True,
        "timestamp": 7,
    }


def test_a_compaction() -> None:
    assert shown(entry(b"{}", "compaction")) == {
        "role": "system",
        "content": [{"type": "text", "text": "Compaction"}],
        "timestamp": 1_795_226_722_693,
        "__openclaw": {"kind": "compaction", "id": "e1"},
    }


@pytest.mark.parametrize("name", ["details", "usage", "cost"])
def test_what_is_not_for_showing_is_taken_out(name: str) -> None:
    assert name not in shown(entry({"role": "assistant", "content": "x", name: {"a": 1}, "timestamp": 1}))


@pytest.mark.parametrize(
    "block", [{"type": "thinking", "thinking": "x"}, {"type": "toolCall", "id": "c", "name": "look", "arguments": {}}]
)
def test_a_signature_is_taken_out(block: dict[str, Any]) -> None:
    for name in ("thinkingSignature", "thoughtSignature"):
        assert shown(entry({"role": "assistant", "content": [{**block, name: "s"}]}))["content"] == [block]


def test_an_image_is_left_out_and_its_size_told() -> None:
    stored = entry(encode_message(UserMessage(content=[ImageBlock(mime_type="image/png", data="QUJD")], timestamp=1)))
    assert shown(stored)["content"] == [{"type": "image", "mimeType": "image/png", "omitted": True, "bytes": 4}]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("[Sat 2026-11-21 01:20 UTC] tokens=5", "tokens=5"),
        ("[2026-11-21T01:20Z] x", "x"),
        ("[WhatsApp +4912345 2026-11-21 01:20] x", "x"),
        ("[Telegram Ann id:7] x", "x"),
        ("[note] x", "[note] x"),
        ("see [Sat 2026-11-21 01:20 UTC] x", "see [Sat 2026-11-21 01:20 UTC] x"),
        ("[unclosed 2026-11-21 01:20", "[unclosed 2026-11-21 01:20"),
        ("[[reply_to:1]] x", "[[reply_to:1]] x"),
    ],
)
def test_the_envelope_of_a_persons_message(text: str, left: str) -> None:
    assert shown(user(text))["content"][0]["text"] == left
    assert shown(entry({"role": "user", "content": text}))["content"] == left


@pytest.mark.parametrize("name", ["text", "thinking", "arguments", "partialJson"])
def test_long_texts_are_cut(name: str) -> None:
    stored = entry(
        {"role": "assistant", "content": [{"type": "x", name: "a" * 12_001}, {"type": "x", name: "a" * 12_000}]}
    )
    cut, whole = (block[name] for block in shown(stored)["content"])
    assert cut == "a" * 12_000 + "\n...(truncated)..." and whole == "a" * 12_000
    assert shown(entry({"role": "user", "content": "b" * 12_001}))["content"].endswith("\n...(truncated)...")


def test_a_message_that_is_too_large_becomes_a_note() -> None:
    blocks = [TextBlock(text="ä" * 12_000)] * 8
    assert shown(assistant(*blocks)) == {
        "role": "assistant",
        "timestamp": 6,
        "content": [{"type": "text", "text": "[chat.history omitted: message too large]"}],
        "__openclaw": {"truncated": True, "reason": "oversized"},
    }


def test_the_answer_is_bounded_and_the_oldest_go() -> None:
    entries = [user(f"{index:03} " + "x" * 996) for index in range(100)]
    messages = history_messages(entries, max_bytes=20_000)
    texts = [json.loads(bytes(message))["content"][0]["text"][:3] for message in messages]
    assert texts == [f"{index:03}" for index in range(100 - len(texts), 100)]
    assert 15_000 < len(msgspec.json.encode(messages)) <= 20_000
    assert len(history_messages(entries)) == 100


def test_what_does_not_read_as_a_message_is_left_out() -> None:
    entries = [entry(payload) for payload in (b"", b"{", b"[]", b'{"role":5}', b"{}", b'"x"')]
    entries += [entry(b'{"role":"user","content":"x"}', "model_change"), user("kept")]
    assert len(history_messages(entries)) == 1
    assert preview_items(entries, limit=10, max_chars=240)[0].text == "kept"


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_blocks = st.dictionaries(st.sampled_from(["type", "text", "thinking", "data", "arguments", "name"]), _json, max_size=4)


@given(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "toolResult", "x"])},
        optional={"content": _json | st.lists(_blocks, max_size=3), "timestamp": _json, "usage": _json},
    )
)
def test_any_stored_json_is_shown_or_left_out(message: dict[str, Any]) -> None:
    stored = entry(message)
    displayed = display_message(stored)
    assert displayed is not None and displayed["role"] == message["role"]
    assert len(history_messages([stored])) == 1
    for item in preview_items([stored], limit=1, max_chars=20):
        assert item.text and len(item.text) <= 20


def test_preview_lines() -> None:
    call = ToolCallBlock(id="1", name="exec", arguments={})
    entries = [
        user("[Sat 2026-11-21 01:20 UTC]  hello "),
        assistant(call),
        assistant(TextBlock(text="let me see"), call),
        assistant(*[ToolCallBlock(id=str(n), name=f"t{n}", arguments={}) for n in range(4)]),
        entry(encode_message(UserMessage(content=[ImageBlock(mime_type="image/png", data="QQ==")], timestamp=1))),
        assistant(),
        assistant(ThinkingBlock(thinking="hm")),
        entry({"role": "system", "content": "note"}),
        entry({"role": "custom", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
    ]
    assert [(item.role, item.text) for item in preview_items(entries, limit=50, max_chars=240)] == [
        ("user", "hello"),
        ("tool", "call exec"),
        ("tool", "let me see"),
        ("tool", "call t0, t1 +2"),
        ("user", "[image]"),
        ("system", "note"),
        ("other", "a\nb"),
    ]
    assert [item.text for item in preview_items(entries, limit=2, max_chars=240)] == ["note", "a\nb"]


def test_preview_limits() -> None:
    entries = [user("x" * 5000)] * 60
    items = preview_items(entries, limit=1000, max_chars=10_000)
    assert len(items) == transcript.MAX_PREVIEW_ITEMS and {len(item.text) for item in items} == {2000}
