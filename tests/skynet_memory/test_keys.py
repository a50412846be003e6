import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_memory.ids import AgentId, SessionKey, UserId
from skynet_memory.keys import MAX_KEY_LENGTH, InvalidSessionKey, OwnerKind, ParsedKey, build_key, parse_key

printable = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])
users = st.text(printable, min_size=1, max_size=40).filter(lambda text: ":" not in text)
agents = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True)
names = st.text(printable, min_size=1, max_size=200)


kinds: st.SearchStrategy[OwnerKind] = st.sampled_from(["user", "group"])


@given(users, agents, names, kinds)
def test_parsing_gives_back_what_was_built(user: str, agent: str, name: str, kind: OwnerKind) -> None:
    key = build_key(UserId(user), AgentId(agent), name, kind)
    assert key == f"{kind}:{user}:agent:{agent}:{name}"
    assert parse_key(key) == ParsedKey(UserId(user), AgentId(agent), name, kind)


@given(st.text() | st.text(alphabet=":user agentx\0é", max_size=600) | st.from_regex(r"(user|group):.*:agent:.*:.*"))
def test_any_text_is_a_key_that_builds_itself_or_refused(text: str) -> None:
    try:
        parsed = parse_key(text)
    except InvalidSessionKey:
        return
    assert build_key(parsed.user, parsed.agent, parsed.name, parsed.kind) == text


def test_the_name_may_hold_colons() -> None:
    key = SessionKey("user:u1:agent:main:discord:direct:42")
    assert parse_key(key) == ParsedKey(UserId("u1"), AgentId("main"), "discord:direct:42")
    assert build_key(UserId("u1"), AgentId("main"), ":") == "user:u1:agent:main::"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "is not user:"),
        ("main", "is not user:"),
        ("agent:main:main", "is not user:"),
        ("user:u1:agent:main", "is not user:"),
        ("user:u1:robot:main:x", "is not user:"),
        ("room:u1:agent:main:x", "is not user:"),
        ("group::agent:main:x", "empty user id"),
        ("user::agent:main:x", "empty user id"),
        ("user:u1:agent:main:", "empty name"),
        ("user:u1:agent::x", "agent id ''"),
        ("user:u1:agent:Main:x", "agent id 'Main'"),
        ("user:u1:agent:-main:x", "agent id '-main'"),
        ("user:u1:agent:" + "a" * 65 + ":x", "agent id"),
        ("user:u1:agent:main\n:x", "agent id"),
        ("user:u1:agent:main:a\nb", "control character"),
        ("user:u\x001:agent:main:x", "control character"),
        ("user:u1:agent:main:\ud800", "control character"),
        ("user:u1:agent:main:" + "x" * 512, "limit is 512"),
    ],
)
def test_refused(key: str, reason: str) -> None:
    with pytest.raises(InvalidSessionKey, match=reason):
        parse_key(key)


@pytest.mark.parametrize(
    ("user", "agent", "name"),
    [("", "main", "x"), ("u:1", "main", "x"), ("u", "", "x"), ("u", "main", ""), ("u", "main", "x" * MAX_KEY_LENGTH)],
)
def test_not_built(user: str, agent: str, name: str) -> None:
    with pytest.raises(InvalidSessionKey):
        build_key(UserId(user), AgentId(agent), name)


def test_the_longest_key() -> None:
    name = "x" * (MAX_KEY_LENGTH - len("user:u:agent:main:"))
    key = build_key(UserId("u"), AgentId("main"), name)
    assert len(key) == MAX_KEY_LENGTH
    assert parse_key(key).name == name
