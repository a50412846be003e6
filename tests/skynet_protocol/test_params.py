"""Params are closed, and what is wrong with them is said in OpenClaw's words."""

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Raw, UnsetType

from skynet_protocol.errors import RequestError
from skynet_protocol.params import (
    LenientParams,
    NonEmptyStr,
    NonNegativeInt,
    Params,
    PositiveInt,
    Result,
    decode_params,
    invalid_params,
)


class Inner(Params, frozen=True):
    id: Literal["a", "b"]
    version: NonEmptyStr = ""


class Wide(Params, frozen=True):
    session_key: NonEmptyStr = "main"
    inner: Inner | UnsetType = UNSET
    protocol: PositiveInt = 3
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200
    at_ms: NonNegativeInt = 0
    ratio: float = 1.0
    probe: bool = False
    tags: tuple[NonEmptyStr, ...] = ()
    few: Annotated[list[int], Meta(min_length=1, max_length=2)] = msgspec.field(default_factory=lambda: [1])
    permissions: dict[str, bool] = msgspec.field(default_factory=dict)
    label: Annotated[str, Meta(max_length=3)] | None = None
    kind: Literal["x", "y"] = "x"
    job: Annotated[str, Meta(pattern="^[a-z]+$")] = "a"
    either: int | str = 1
    anything: Any = None


class Needy(Params, frozen=True):
    session_key: NonEmptyStr
    inner: Inner | UnsetType = UNSET


class Health(LenientParams, frozen=True):
    probe: bool = False


WIDE = msgspec.json.Decoder(Wide)
NEEDY = msgspec.json.Decoder(Needy)


def message_of(raw: bytes, decoder: msgspec.json.Decoder[Any] = WIDE) -> str:
    with pytest.raises(RequestError) as caught:
        decode_params(Raw(raw), decoder, "x.y")
    assert caught.value.code == "INVALID_REQUEST"
    assert caught.value.details == {"code": "INVALID_PARAMS"}
    prefix = "invalid x.y params: "
    assert caught.value.message.startswith(prefix)
    return caught.value.message.removeprefix(prefix)


@pytest.mark.parametrize("raw", [None, b"null", b" null ", b"{}", Raw(b"null"), Raw(b"{}")])
def test_absent_and_null_params_are_an_empty_object(raw):
    assert decode_params(raw, WIDE, "x.y") == Wide()


def test_names_are_camel_case_on_the_wire():
    params = decode_params(b'{"sessionKey":"k","atMs":5}', WIDE, "x.y")
    assert (params.session_key, params.at_ms) == ("k", 5)
    assert message_of(b'{"session_key":"k"}') == "at root: unexpected property 'session_key'"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ('{"foo":1}', "at root: unexpected property 'foo'"),
        ('{"inner":{"id":"a","foo":1}}', "at /inner: unexpected property 'foo'"),
        ('{"inner":{}}', "at /inner: must have required property 'id'"),
        ('{"sessionKey":5}', "at /sessionKey: must be string"),
        ('{"sessionKey":null}', "at /sessionKey: must be string"),
        ('{"sessionKey":""}', "at /sessionKey: must NOT have fewer than 1 characters"),
        ('{"limit":"5"}', "at /limit: must be integer"),
        ('{"limit":1.5}', "at /limit: must be integer"),
        ('{"limit":0}', "at /limit: must be >= 1"),
        ('{"limit":1001}', "at /limit: must be <= 1000"),
        ('{"protocol":0}', "at /protocol: must be >= 1"),
        ('{"atMs":-1}', "at /atMs: must be >= 0"),
        ('{"atMs":9007199254740992}', "at /atMs: must be <= 9007199254740991"),
        ('{"atMs":99999999999999999999999999}', "at /atMs: must be <= 9007199254740991"),
        ('{"atMs":' + "9" * 6000 + "}", "at /atMs: must be integer"),
        ('{"ratio":"x"}', "at /ratio: must be number"),
        ('{"ratio":1e999}', "at /ratio: must be number"),
        ('{"anything":1e999}', "at /anything: must be number"),
        ('{"probe":1}', "at /probe: must be boolean"),
        ('{"inner":[]}', "at /inner: must be object"),
        ('{"tags":{}}', "at /tags: must be array"),
        ('{"tags":["a",5]}', "at /tags/1: must be string"),
        ('{"tags":["a","b",""]}', "at /tags/2: must NOT have fewer than 1 characters"),
        ('{"few":[]}', "at /few: must NOT have fewer than 1 items"),
        ('{"few":[1,2,3]}', "at /few: must NOT have more than 2 items"),
        ('{"permissions":{"a":1}}', "at /permissions/*: must be boolean"),
        ('{"label":"abcd"}', "at /label: must NOT have more than 3 characters"),
        (
            '{"label":5}',
            "at /label: must be string; at /label: must be null; at /label: must match a schema in anyOf",
        ),
        (
            '{"either":[]}',
            "at /either: must be integer; at /either: must be string; at /either: must match a schema in anyOf",
        ),
        ('{"kind":"z"}', "at /kind: must be equal to constant; at /kind: must match a schema in anyOf"),
        (
            '{"inner":{"id":"z"}}',
            "at /inner/id: must be equal to constant; at /inner/id: must match a schema in anyOf",
        ),
        ('{"inner":{"id":5}}', "at /inner/id: must be string"),
        ('{"job":"A"}', 'at /job: must match pattern "^[a-z]+$"'),
        ("[]", "must be object"),
        ('"text"', "must be object"),
        ("5", "must be object"),
    ],
)
def test_messages(raw, message):
    assert message_of(raw.encode()) == message


def test_a_missing_property_at_the_root():
    assert message_of(b"{}", NEEDY) == "must have required property 'sessionKey'"


@pytest.mark.parametrize("raw", [b"", b"{", b"{'a':1}", b"\xff", b'{"sessionKey":"\xff"}', b'{"sessionKey":"\\ud800"}'])
def test_what_is_no_json(raw):
    assert message_of(raw) == "must be valid JSON"


def test_nesting_beyond_what_can_be_decoded():
    nested = b'{"anything":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert message_of(nested) == "must not be nested so deeply"


def test_a_long_unknown_name_is_not_repeated_whole():
    assert len(message_of(json.dumps({"x" * 100_000: 1}).encode())) < 300


@pytest.mark.parametrize("name", ["a`b", "` - at `$.limit", "a\nb", "$.x", "é🦞"])
def test_unknown_names_with_odd_characters(name):
    assert "unexpected property" in message_of(json.dumps({name: 1}).encode())


def test_lenient_params_ignore_what_they_do_not_know():
    assert decode_params(b'{"probe":true,"foo":1}', msgspec.json.Decoder(Health), "health").probe


def test_of_duplicate_keys_the_last_counts():
    assert decode_params(b'{"limit":1,"limit":2}', WIDE, "x.y").limit == 2


def test_results_leave_out_what_is_unset_and_keep_null():
    class Example(Result):
        session_key: str
        model: str | None
        label: str | UnsetType = UNSET

    assert msgspec.json.encode(Example(session_key="k", model=None)) == b'{"sessionKey":"k","model":null}'


def test_a_rule_beyond_the_schema_has_the_same_form():
    assert str(invalid_params("agent", 'unknown agent id "x"')) == 'invalid agent params: unknown agent id "x"'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)
FIELDS = ["sessionKey", "inner", "protocol", "limit", "ratio", "probe", "tags", "few", "permissions", "label", "kind"]


@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), json_values, max_size=5))
def test_any_json_decodes_or_is_named_as_wrong(value):
    try:
        decode_params(json.dumps(value).encode(), WIDE, "x.y")
    except RequestError as error:
        assert error.message.startswith("invalid x.y params: ")
        assert "Expected" not in error.message
        assert "$" not in error.message or any("$" in name for name in value)


@given(st.binary())
def test_any_bytes_decode_or_are_named_as_wrong(raw):
    try:
        decode_params(raw, WIDE, "x.y")
    except RequestError as error:
        assert error.shape().message
