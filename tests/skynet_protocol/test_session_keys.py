import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_protocol.errors import RequestError
from skynet_protocol.session_keys import FullKey, WireKey, is_agent_id, parse_wire_key


@pytest.mark.parametrize(
    ("key", "canonical"),
    [
        ("main", "agent:main:main"),
        ("MAIN", "agent:main:main"),
        (" main ", "agent:main:main"),
        ("agent:main:main", "agent:main:main"),
        ("Agent:Main:Main", "agent:main:main"),
        ("notes", "agent:main:notes"),
        ("Notes", "agent:main:notes"),
        ("agent:work:notes", "agent:work:notes"),
        ("agent:work:discord:group:12", "agent:work:discord:group:12"),
        ("acp:0F-1", "agent:main:acp:0f-1"),
        ("agent:main:openai-user:ann@example.org", "agent:main:openai-user:ann@example.org"),
        ("global", "agent:main:global"),
        ("user:bob", "agent:main:user:bob"),
        ("agents", "agent:main:agents"),
        ("日記", "agent:main:日記"),
        ("a b", "agent:main:a b"),
    ],
)
def test_what_a_key_means(key, canonical):
    parsed = parse_wire_key(key)
    assert isinstance(parsed, WireKey)
    assert parsed.canonical == canonical
    assert parse_wire_key(parsed.canonical) == parsed


def test_main_is_an_alias_of_the_main_key_for_every_agent():
    for key, agent in (("main", "home"), ("agent:home:main", "home"), ("agent:work:main", "work"), ("hub", "home")):
        assert parse_wire_key(key, default_agent="home", main_key="hub") == WireKey(agent, "hub")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("user:0199-u:agent:main:main", FullKey("0199-u", "main", "main")),
        ("USER:A:AGENT:Work:X:Y", FullKey("a", "work", "x:y")),
    ],
)
def test_full_keys(key, expected):
    assert parse_wire_key(key) == expected
    assert parse_wire_key(expected.canonical) == expected


def test_a_full_key_has_the_main_alias_too():
    parsed = parse_wire_key("user:u:agent:work:main", main_key="hub")
    assert parsed == FullKey("u", "work", "hub")
    assert parsed.canonical == "user:u:agent:work:hub"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "  ",
        "agent:",
        "agent:x",
        "agent:x:",
        "agent::main",
        "agent:-x:main",
        "agent:a b:main",
        "agent:é:main",
        "agent:" + "a" * 65 + ":main",
        "agent:../x:main",
        "user::agent:main:x",
        "user:u:agent",
        "user:u:agent:main",
        "user:u:agent:main:",
        "user:u:agent:BAD/:x",
        "a\x00b",
        "a\nb",
        "a\x7fb",
        "a\x85b",
        "a\u2028b",
        "a\ud800b",
        "x" * 513,
    ],
)
def test_malformed_keys(key):
    with pytest.raises(RequestError, match="malformed session key") as caught:
        parse_wire_key(key)
    assert caught.value.code == "INVALID_REQUEST"


def test_the_key_is_named_as_it_came():
    with pytest.raises(RequestError) as caught:
        parse_wire_key("Agent:X")
    assert caught.value.message == 'malformed session key "Agent:X"'


def test_the_longest_key():
    assert parse_wire_key("x" * 512) == WireKey("main", "x" * 512)
    assert parse_wire_key(" " * 508 + "main") == WireKey("main", "main")
    with pytest.raises(RequestError, match="malformed session key"):
        parse_wire_key(" " * 509 + "main")


def test_agent_ids():
    assert all(map(is_agent_id, ("main", "a", "0-_", "a" * 64)))
    assert not any(map(is_agent_id, ("", "A", "-a", "a" * 65, "a:b", "a\n", "é")))


@given(st.text() | st.from_regex(r"(agent|user|main|:|[a-z]|\s)*"))
def test_any_text_is_a_stable_key_or_malformed(key):
    try:
        parsed = parse_wire_key(key)
    except RequestError:
        return
    assert is_agent_id(parsed.agent_id)
    assert parsed.rest
    if len(parsed.canonical) <= 512:
        assert parse_wire_key(parsed.canonical) == parsed
