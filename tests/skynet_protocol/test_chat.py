"""What becomes of a message before a run sees it, and the params of ``chat.*``."""

import base64
import unicodedata
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from skynet_protocol.chat import (
    MAX_ATTACHMENT_BYTES,
    MAX_NAMED,
    Attachments,
    ChatAbortParams,
    ChatAbortResult,
    ChatHistoryParams,
    ChatHistoryResult,
    ChatInjectParams,
    ChatInjectResult,
    ChatSendParams,
    ChatSendResult,
    add_time_prefix,
    decode_attachments,
    is_stop_word,
    normalize_message,
    require_content,
    sniff_image,
)
from skynet_protocol.errors import RequestError
from skynet_protocol.params import decode_params

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
JPEG = b"\xff\xd8\xff\xe0" + b"\0" * 16
GIF = b"GIF89a" + b"\0" * 16
WEBP = b"RIFF\x10\0\0\0WEBPVP8 "
NOW = datetime(2026, 11, 21, 1, 20, 59, tzinfo=UTC)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def refused(items: list[object]) -> str:
    with pytest.raises(RequestError) as caught:
        decode_attachments(items)
    assert caught.value.code == "INVALID_REQUEST"
    return caught.value.message


def test_chat_send_params():
    decoder = msgspec.json.Decoder(ChatSendParams)
    params = decode_params(b'{"sessionKey":"main","message":"","idempotencyKey":"k"}', decoder, "chat.send")
    assert (params.thinking, params.deliver, params.attachments, params.timeout_ms) == ("", False, (), UNSET)
    params = decode_params(
        b'{"sessionKey":"main","message":"m","idempotencyKey":"k","thinking":"low","deliver":true,'
        b'"attachments":[{"content":"x"},null],"timeoutMs":0}',
        decoder,
        "chat.send",
    )
    assert (params.timeout_ms, params.attachments) == (0, ({"content": "x"}, None))


@pytest.mark.parametrize(
    ("params", "raw", "problem"),
    [
        (ChatSendParams, '{"sessionKey":"m","message":"x"}', "must have required property 'idempotencyKey'"),
        (
            ChatSendParams,
            '{"sessionKey":"","message":"x","idempotencyKey":"k"}',
            "at /sessionKey: must NOT have fewer than 1 characters",
        ),
        (
            ChatSendParams,
            '{"sessionKey":"m","message":"x","idempotencyKey":"k","timeoutMs":-1}',
            "at /timeoutMs: must be >= 0",
        ),
        (
            ChatSendParams,
            '{"sessionKey":"m","message":"x","idempotencyKey":"k","model":"y"}',
            "at root: unexpected property 'model'",
        ),
        (ChatHistoryParams, '{"sessionKey":"m","limit":0}', "at /limit: must be >= 1"),
        (ChatHistoryParams, '{"sessionKey":"m","limit":1001}', "at /limit: must be <= 1000"),
        (ChatAbortParams, '{"sessionKey":"m","runId":""}', "at /runId: must NOT have fewer than 1 characters"),
        (
            ChatInjectParams,
            '{"sessionKey":"m","message":""}',
            "at /message: must NOT have fewer than 1 characters",
        ),
        (
            ChatInjectParams,
            '{"sessionKey":"m","message":"x","label":"' + "l" * 101 + '"}',
            "at /label: must NOT have more than 100 characters",
        ),
    ],
)
def test_bad_params(params, raw, problem):
    with pytest.raises(RequestError) as caught:
        decode_params(raw.encode(), msgspec.json.Decoder(params), "chat.x")
    assert caught.value.message == f"invalid chat.x params: {problem}"


def test_defaults():
    assert ChatHistoryParams(session_key="m").limit == 200
    assert ChatAbortParams(session_key="m").run_id is UNSET


@pytest.mark.parametrize(
    ("result", "encoded"),
    [
        (ChatSendResult(run_id="r", status="started"), b'{"runId":"r","status":"started"}'),
        (ChatAbortResult(ok=True, aborted=False, run_ids=()), b'{"ok":true,"aborted":false,"runIds":[]}'),
        (ChatInjectResult(ok=True, message_id="m"), b'{"ok":true,"messageId":"m"}'),
        (
            ChatHistoryResult(session_key="main", messages=(), thinking_level="off"),
            b'{"sessionKey":"main","messages":[],"thinkingLevel":"off"}',
        ),
    ],
)
def test_results(result, encoded):
    assert msgspec.json.encode(result) == encoded


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("plain", "plain"),
        ("e\u0301", "\u00e9"),
        ("a\tb\nc\r\n", "a\tb\nc\r\n"),
        ("a\x07\x1b[31mb\x7f", "a[31mb"),
        ("a\x9b31mb", "a31mb"),
        ("\x01\x02", ""),
        ("", ""),
        ("🦞\u200d", "🦞\u200d"),
    ],
)
def test_normalization(text, normalized):
    assert normalize_message(text) == normalized


def test_nul_is_refused():
    with pytest.raises(RequestError, match=r"^message must not contain null bytes$"):
        normalize_message("a\0b")


@given(st.text())
def test_a_normalized_message_stays_as_it_is(text):
    if "\0" in text:
        return
    once = normalize_message(text)
    assert not any(unicodedata.category(character) == "Cc" and character not in "\t\n\r" for character in once)
    assert normalize_message(once) == unicodedata.normalize("NFC", once)


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (b"GIF87a", "image/gif"),
        (WEBP, "image/webp"),
        (b"RIFF\x10\0\0\0WAVE", None),
        (b"%PDF-1.7", None),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None),
        (b"", None),
    ],
)
def test_types_are_sniffed(data, mime_type):
    assert sniff_image(data) == mime_type


def test_images_are_kept_with_the_type_that_their_bytes_have():
    found = decode_attachments(
        [
            {"type": "image", "mimeType": "image/gif", "fileName": "a.gif", "content": b64(PNG)},
            {"content": "data:image/jpeg;base64," + b64(JPEG)},
            {"content": "data:image/webp;charset=x;base64," + b64(WEBP)},
            {"content": f"  {b64(GIF)}\n", "fileName": 5, "unknown": True},
        ]
    )
    assert [image.mime_type for image in found.images] == ["image/png", "image/jpeg", "image/webp", "image/gif"]
    assert [image.data for image in found.images] == [b64(PNG), b64(JPEG), b64(WEBP), b64(GIF)]
    assert found.images[0].size_bytes == len(PNG)
    assert found.dropped == ()


def test_what_is_no_image_is_dropped_and_named():
    found = decode_attachments(
        [
            {"mimeType": "image/png", "fileName": "report.png", "content": b64(b"%PDF-1.7")},
            {"type": "file", "content": b64(b"text")},
            {"content": b64(b"text")},
        ]
    )
    assert found == Attachments(dropped=("report.png", "file", "attachment-3"))
    assert len(decode_attachments([{"content": b64(b"text")}] * 1000).dropped) == MAX_NAMED


def test_a_run_id_is_bounded():
    """It is in every event of the run, and is remembered."""
    decoder = msgspec.json.Decoder(ChatSendParams)
    for length, fits in ((512, True), (513, False), (1_000_000, False)):
        raw = b'{"sessionKey":"main","message":"m","idempotencyKey":"%b"}' % (b"k" * length)
        if fits:
            assert decode_params(raw, decoder, "chat.send").idempotency_key == "k" * length
        else:
            with pytest.raises(RequestError, match="at /idempotencyKey: must NOT have more than 512 characters"):
                decode_params(raw, decoder, "chat.send")


@pytest.mark.parametrize("item", [None, 5, "x", [], {}, {"content": None}, {"content": ""}, {"content": {"a": 1}}])
def test_items_without_content_are_ignored(item):
    assert decode_attachments([item]) == Attachments()


@pytest.mark.parametrize(
    "content",
    [
        "!",
        "AAA",
        "AAAA=",
        "A===",
        "AA=A",
        "AAAA AAAA",
        "AAAA\nAAAA",
        "A-_A",
        "é",
        " ",
        "data:image/png;base64,",
        "====",
    ],
)
def test_what_is_no_base64(content):
    assert refused([{"fileName": "a.png", "content": content}]) == "attachment a.png: invalid base64 content"


def test_a_data_url_that_is_not_base64():
    assert refused([{"content": "data:image/png,AAAA"}]) == "attachment attachment-1: invalid base64 content"


def test_the_size_limit_is_exact():
    largest = PNG + b"\0" * (MAX_ATTACHMENT_BYTES - len(PNG))
    assert decode_attachments([{"content": b64(largest)}]).images[0].size_bytes == MAX_ATTACHMENT_BYTES
    message = refused([{"fileName": "big.png", "content": b64(largest + b"\0")}])
    assert message == "attachment big.png: exceeds size limit (5000001 > 5000000 bytes)"


def test_a_long_name_is_not_repeated_whole():
    assert len(refused([{"fileName": "x" * 10_000, "content": "!"}])) < 300


@given(st.lists(st.none() | st.text() | st.dictionaries(st.sampled_from(["content", "fileName", "type"]), st.text())))
def test_any_attachments_are_decoded_or_refused(items):
    try:
        decode_attachments(items)
    except RequestError as error:
        assert error.message.startswith("attachment ")


def test_something_has_to_be_said():
    require_content("hi", Attachments())
    require_content(" ", decode_attachments([{"content": b64(PNG)}]))
    for attachments in (Attachments(), decode_attachments([{"content": b64(b"text")}])):
        with pytest.raises(RequestError, match=r"^message or attachment required$"):
            require_content(" \n", attachments)


STOP_WORDS = """
/stop|stop|esc|abort|wait|exit|interrupt|halt|please stop|stop please|do not do that|stop run|stop agent|stop the agent
stop action|stop current action|stop current run|stop openclaw|openclaw stop|stop doing anything|stop don't do anything
stop dont do anything|stop do not do anything|detente|deten|detén|arrete|arrête|停止|やめて|止めて|रुको|توقف|стоп
остановись|останови|остановить|прекрати|anhalten|aufhören|hoer auf|stopp|pare
"""


@pytest.mark.parametrize("word", STOP_WORDS.strip().replace("\n", "|").split("|"))
def test_stop_words(word):
    assert is_stop_word(word)
    assert is_stop_word(f"  {word.upper()}!?  ")
    assert is_stop_word(f"{word} …")
    assert is_stop_word(word.replace(" ", "  ").replace("'", "’"))
    assert not is_stop_word(f"{word} x")
    assert not is_stop_word(f"x {word}")


@pytest.mark.parametrize("text", ["", " ", "!", "stop it", "don't stop", "stopping", "/stopp", "/stop now", "st op"])
def test_what_is_no_stop_word(text):
    assert not is_stop_word(text)


def test_a_long_text_is_no_stop_word():
    assert not is_stop_word("stop" + "!" * 1_000_000)


def test_the_time_prefix():
    assert add_time_prefix("hi", NOW) == "[Sat 2026-11-21 01:20 UTC] hi"
    zone = timezone(timedelta(hours=1), "CET")
    assert add_time_prefix("hi", NOW.astimezone(zone)) == "[Sat 2026-11-21 02:20 CET] hi"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "[Sat 2026-11-21 01:20 UTC] hi",
        "[Discord Ann 2026-11-21 01:20] hi",
        "remind me. Current time: 5",
    ],
)
def test_texts_that_get_no_time_prefix(text):
    assert add_time_prefix(text, NOW) == text


@given(st.text(), st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_the_time_is_put_before_a_text_once(text, now):
    prefixed = add_time_prefix(text, now)
    assert prefixed.endswith(text)
    assert add_time_prefix(prefixed, now) == prefixed
