"""What the readers of all wire APIs share: whole characters, numbered calls, bounds, and an end whatever comes."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.errors import BadRequest, Overloaded, ProviderError, RateLimited, StreamCut
from skynet_agent.events import Ended, Part, TextDelta, ThinkingDelta, ToolCallDelta
from skynet_agent.messages import Usage
from skynet_agent.ndjson import LineDecoder
from skynet_agent.reading import (
    MOST_CALLS,
    MOST_CHARACTERS,
    MOST_TOKENS,
    AnswerReader,
    Parts,
    Source,
    repair,
    tokens,
    usage_of,
)


class Words:
    """An interpreter of lines: each is a text, but for a few words."""

    def __init__(self) -> None:
        self.complete = False

    def read(self, event: bytes, parts: Parts) -> bool:
        match event:
            case b"refuse":
                raise BadRequest("lab: no", provider="lab")
            case b"complete":
                self.complete = True
            case b"end":
                return True
            case _:
                parts.text(event.decode())
        return False

    def end(self, parts: Parts) -> Ended:
        if parts.calls:
            raise Overloaded("lab: calls", provider="lab")
        return Ended("stop", None)


def new_reader(limit_bytes: int = 1000) -> AnswerReader[bytes]:
    return AnswerReader(Source("lab"), LineDecoder(limit_bytes), Words())


def read(*pieces: bytes, limit_bytes: int = 1000) -> tuple[list[Part], ProviderError | None]:
    it = new_reader(limit_bytes)
    parts = [part for piece in pieces for part in it.feed(piece)] + it.close()
    assert it.ended
    return parts, it.failure


A, B, END = TextDelta("a"), TextDelta("b"), Ended("stop", None)


@pytest.mark.parametrize(
    ("pieces", "parts", "failure"),
    [
        ([b"a\nb\nend\nc\n"], [A, B, END], None),
        ([b"a\n", b"end\n", b"end\n", b"refuse\n"], [A, END], None),
        ([b"a\ncomplete\n"], [A, END], None),
        ([b"a\ncomplete\nb"], [A, B, END], None),
        ([b"a\nend"], [A, END], None),
        ([b"a\n"], [A], StreamCut),
        ([], [], StreamCut),
        ([b"a\nrefuse\nb\nend\n"], [A], BadRequest),
        ([b"a\n", b"refuse\n", b"end\n"], [A], BadRequest),
        ([b"a\ncomplete\nrefuse"], [A], BadRequest),
        ([b"a\n", b"x" * 2000, b"x"], [A], StreamCut),
    ],
)
def test_ends(pieces: list[bytes], parts: list[Part], failure: type[ProviderError] | None) -> None:
    got, why = read(*pieces)
    assert got == parts
    assert why is None if failure is None else type(why) is failure


def test_what_is_fed_after_the_end_is_ignored() -> None:
    it = new_reader()
    assert it.feed(b"a\nend\n") == [A, END]
    assert (it.feed(b"b\n"), it.close(), it.failure) == ([], [], None)
    it = new_reader()
    it.feed(b"refuse\n")
    failure = it.failure
    assert (it.feed(b"b\n"), it.close()) == ([], [])
    assert it.failure is failure


def test_an_answer_may_be_refused_at_its_end() -> None:
    class Calls(Words):
        def read(self, event: bytes, parts: Parts) -> bool:
            parts.begin_call("c", "exec")
            return super().read(event, parts)

    it = AnswerReader(Source("lab"), LineDecoder(), Calls())
    assert [type(part) for part in it.feed(b"a\nend\n")] == [ToolCallDelta, TextDelta, ToolCallDelta]
    assert isinstance(it.failure, Overloaded)


def test_an_answer_without_end_is_cut() -> None:
    it = AnswerReader(Source("lab"), LineDecoder(MOST_CHARACTERS * 2), Words())
    line, fed = b"x" * 1_000_000 + b"\n", 0
    while not it.ended:
        it.feed(line)
        fed += len(line)
        assert fed < MOST_CHARACTERS + 2 * len(line)
    assert isinstance(it.failure, StreamCut)
    assert str(it.failure) == f"lab: the answer is longer than {MOST_CHARACTERS} characters"


def test_an_answer_of_calls_without_end_is_cut() -> None:
    class Calls(Words):
        def read(self, event: bytes, parts: Parts) -> bool:
            parts.begin_call("", "look")
            return False

    it, fed = AnswerReader(Source("lab"), LineDecoder(), Calls()), 0
    while not it.ended:
        it.feed(b"call\n" * 10)
        fed += 10
    assert fed == MOST_CALLS + 10
    assert str(it.failure) == f"lab: the answer has more than {MOST_CALLS} tool calls"


# Parts


def test_calls_are_numbered_and_named() -> None:
    parts = Parts()
    assert (parts.begin_call("c", "exec", "{"), parts.begin_call("", "read", signature="sig")) == (0, 1)
    parts.arguments(0, "}")
    parts.arguments(1, "")
    assert parts.take() == [
        ToolCallDelta(0, "c", "exec", "{"),
        ToolCallDelta(1, "call_1", "read", "", "sig"),
        ToolCallDelta(0, "", "", "}"),
    ]
    assert (parts.take(), parts.calls) == ([], 2)


def test_what_says_nothing_is_no_part() -> None:
    parts = Parts()
    parts.text("")
    parts.thinking("")
    assert parts.take() == []
    parts.thinking("", signature="sig")
    parts.thinking("", signature="sealed", redacted=True)
    assert parts.take() == [ThinkingDelta("", "sig"), ThinkingDelta("", "sealed", True)]


def test_halves_of_surrogate_pairs_are_joined_each_kind_for_itself() -> None:
    parts = Parts()
    call = parts.begin_call("c", "exec", "\ud83d")
    parts.text("a\ud83d")
    parts.thinking("\ud83d")
    parts.text("\ude00")
    parts.thinking("x")
    parts.arguments(call, "\ude00")
    assert parts.take() == [
        ToolCallDelta(0, "c", "exec", ""),
        TextDelta("a"),
        TextDelta("😀"),
        ThinkingDelta("\ufffdx"),
        ToolCallDelta(0, "", "", "😀"),
    ]


surrogates = st.text(st.characters(categories=("Cs",)) | st.sampled_from("aé😀"), max_size=4)


@given(st.lists(surrogates, max_size=6))
def test_any_pieces_of_text_are_whole_characters(pieces: Sequence[str]) -> None:
    parts = Parts()
    for piece in pieces:
        parts.text(piece)
    said = "".join(part.text for part in parts.take() if isinstance(part, TextDelta))
    said.encode()
    whole = repair("".join(pieces))
    assert said in (whole, whole[:-1])  # a half at the very end waits for the other one


@given(surrogates)
def test_repaired_text_can_be_encoded(text: str) -> None:
    repair(text).encode()


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"prompt": 10, "output": 2}, Usage(10, 2, 0, 0, 12)),
        ({"prompt": 10, "output": 2, "cache_read": 6, "cache_write": 3}, Usage(1, 2, 6, 3, 12)),
        ({"prompt": 10, "output": None, "cache_read": None}, Usage(10, 0, 0, 0, 10)),
        ({"prompt": 10, "output": 2, "cache_read": 8, "cache_write": 8}, Usage(0, 2, 8, 2, 12)),
        ({"prompt": None, "output": -1, "cache_read": 5}, Usage(0, 0, 0, 0, 0)),
        ({"prompt": 2**64, "output": 2**64}, Usage(MOST_TOKENS, MOST_TOKENS, 0, 0, 2 * MOST_TOKENS)),
    ],
)
def test_usage(counts: dict[str, int | None], usage: Usage) -> None:
    assert usage_of(**counts) == usage  # type: ignore[arg-type]


counts = st.none() | st.integers()


@given(counts, counts, counts, counts)
def test_the_counts_of_any_usage_add_up(prompt: object, output: object, read: object, written: object) -> None:
    usage = usage_of(prompt=prompt, output=output, cache_read=read, cache_write=written)
    assert usage.total == usage.input + usage.output + usage.cache_read + usage.cache_write
    assert min(usage.input, usage.output, usage.cache_read, usage.cache_write) >= 0
    assert usage.total < 2**63
    assert tokens(prompt) >= 0


# Source


class Chunk(msgspec.Struct):
    text: str | None = None


CHUNK = msgspec.json.Decoder(Chunk)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"text":"a"}', "a"),
        (b'{"other":[1]}', None),
        (b'{"text":"\\ud83d"}', "\ud83d"),
        (b'{"text":"\xff"}', "\ufffd"),
        (b' {"text" : "\\u0000"} ', "\0"),
    ],
)
def test_chunks(data: bytes, text: str | None) -> None:
    assert Source("lab").decode(CHUNK, data).text == text


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'{"text":1}', b"[" * 100_000, b"1" + b"0" * 5000, b"\xff", b'{"text":"a"} x']
)
def test_what_is_no_chunk(data: bytes) -> None:
    with pytest.raises(StreamCut, match=r"^lab: a chunk that makes no sense: ") as caught:
        Source("lab").decode(CHUNK, data)
    assert len(str(caught.value)) < 200


def test_no_failure_shows_a_secret() -> None:
    source = Source("lab", (b"secret-one", b"secret-two", b"x", b""))
    assert source.redact(b"x secret-one secret-two") == b"x *** ***"
    assert str(source.failure_in(b'{"error":{"message":"key secret-one"}}')) == "lab: key *** (HTTP 500)"
    with pytest.raises(StreamCut, match=r"'\*\*\* is no JSON'"):
        source.decode(CHUNK, b"secret-two is no JSON")


def test_failures_in_a_stream_are_of_their_kind() -> None:
    assert type(Source("lab").failure_in(b'{"code":429,"message":"slow"}')) is RateLimited
    assert type(Source("lab").failure_in(b'{"response":{"error":{"code":"rate_limit_exceeded"}}}')) is RateLimited
    assert type(Source("lab").failure_in(b"boom")) is Overloaded
