"""*Any text is a key of the caller's own, or a refusal; never another's.*"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skynet.gateway.errors import error_shape
from skynet.gateway.keys import key_part, owner_of, render_key, resolve_key, room_of
from skynet_memory.errors import SessionNotFound
from skynet_memory.ids import AgentId, Role, SessionKey, UserId, new_id
from skynet_memory.keys import InvalidSessionKey, build_key, parse_key
from skynet_protocol.errors import RequestError
from skynet_users.caller import Caller

# The same in every process: tests are named by them
ADA = UserId("01a20151-e068-7bec-9ee1-98e864c5dfb5")
BEN = UserId("01a20151-e068-7c92-aac1-ef19fc028fad")
ROOM = UserId("01a20151-e068-7ca3-a05f-5a6e11328ded")
NO_ROOM = UserId("01a20151-e069-7a9c-9ff3-57ab93292c11")
REFUSALS = (RequestError, SessionNotFound, InvalidSessionKey)


def caller(user: UserId = ADA) -> Caller:
    return Caller(user_id=user, role=Role.USER, scopes=frozenset(), correlation_id="c")


def key_of(user: UserId, name: str = "main", agent: str = "main") -> SessionKey:
    return build_key(user, AgentId(agent), name)


ODD = (" ", "\t", "\n", "\x00", "\u2028", "ß", "İ", "Σ", "\ud800", "..", "/", "x" * 300)
PIECES = st.sampled_from(
    [
        ADA,
        BEN,
        ROOM,
        ADA.upper(),
        BEN.upper(),
        "user",
        "USER",
        "agent",
        "Agent",
        "main",
        "group",
        "global",
        ":",
        "::",
        *ODD,
    ]
)
KEYS = st.one_of(
    st.text(),
    st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=12).map("".join),
    st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=7).map(":".join),
)


@given(KEYS)
@example(f"user:{BEN}:agent:main:main")
@example(f"agent:main:user:{BEN}:agent:main:main")
@example(f"USER:{BEN.upper()}:AGENT:MAIN:MAIN")
@example(f" user:{BEN}:agent:main:main ")
@example(f"user:{ADA}:agent:main:user:{BEN}:agent:main:main")
@example(f"user:{ADA}:user:{BEN}:agent:main:main")
def test_any_text_is_a_key_of_the_caller_or_a_refusal(text: str) -> None:
    try:
        key = resolve_key(caller(), text)
    except REFUSALS as refusal:
        assert error_shape(refusal).code == "INVALID_REQUEST"
        assert error_shape(refusal).message
        return
    assert parse_key(key).user == ADA
    # What the client is shown means the same session again, for its owner alone.
    assert resolve_key(caller(), render_key(key)) == key
    assert resolve_key(caller(), key) == key
    assert parse_key(resolve_key(caller(BEN), render_key(key))).user == BEN
    with pytest.raises(SessionNotFound):
        resolve_key(caller(BEN), key)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("main", "main"),
        (" MAIN ", "main"),
        ("agent:main:main", "main"),
        ("Agent:Main:Discord:42", "discord:42"),
        ("acp:7f3a", "acp:7f3a"),
        ("global", "global"),
        ("user:ada", "user:ada"),
        ("group:7", "group:7"),
        ("agent:main:group:7:agent:main:x", "group:7:agent:main:x"),
        ("../../etc/passwd", "../../etc/passwd"),
        (f"user:{ADA}:agent:main:a:b", "a:b"),
        (f"User:{ADA.upper()}:Agent:Main:A", "a"),
    ],
)
def test_what_clients_write(text: str, name: str) -> None:
    key = resolve_key(caller(), text)
    assert key == key_of(ADA, name)
    assert render_key(key) == f"agent:main:{name}"


class Kitchen:
    """One room, with Ada in it."""

    def is_member(self, group: UserId, user: UserId) -> bool:
        return (group, user) == (ROOM, ADA)


@pytest.mark.parametrize("text", [f"group:{ROOM}:agent:main:main", f" Group:{ROOM.upper()}:AGENT:main:Main "])
def test_a_rooms_session_is_its_members(text: str) -> None:
    """BA-263: and keeps its full key, whoever is shown it."""
    key = resolve_key(caller(), text, Kitchen())
    assert key == build_key(ROOM, AgentId("main"), "main", "group") == f"group:{ROOM}:agent:main:main"
    assert render_key(key) == key
    assert (owner_of(key), room_of(key)) == (ROOM, ROOM)
    own = resolve_key(caller(), "main", Kitchen())
    assert (owner_of(own), room_of(own)) == (ADA, None)


@pytest.mark.parametrize(
    ("who", "key"),
    [
        (BEN, f"group:{ROOM}:agent:main:main"),  # no member
        (ADA, f"group:{NO_ROOM}:agent:main:main"),  # no room
        (ADA, f"group:{ADA}:agent:main:main"),  # a person is no room
        (ADA, f"user:{ROOM}:agent:main:main"),  # and a room no person
        (ADA, f"user:{BEN}:agent:main:main"),
    ],
)
def test_any_other_room_reads_like_a_session_that_nobody_has(who: UserId, key: str) -> None:
    with pytest.raises(SessionNotFound) as refusal:
        resolve_key(caller(who), key, Kitchen())
    assert str(refusal.value) == str(SessionNotFound(key))


@given(KEYS)
def test_any_text_is_a_key_of_the_caller_or_of_their_room(text: str) -> None:
    try:
        key = resolve_key(caller(), text, Kitchen())
    except REFUSALS:
        return
    assert owner_of(key) in (ADA, ROOM)
    assert resolve_key(caller(), key, Kitchen()) == key == resolve_key(caller(), render_key(key), Kitchen())
    if room_of(key):
        for rooms in (None, Kitchen()):
            with pytest.raises(SessionNotFound):
                resolve_key(caller(BEN), key, rooms)


def test_other_agents_are_kept_apart() -> None:
    assert resolve_key(caller(), "agent:work:main") == key_of(ADA, agent="work")
    assert render_key(key_of(ADA, agent="work")) == "agent:work:main"


@pytest.mark.parametrize(
    "text", ["", "  ", "agent:", "agent:x", "agent::x", "agent:main:", "agent:a b:x", "a\x00b", "a\nb"]
)
def test_malformed(text: str) -> None:
    with pytest.raises(RequestError, match="malformed session key"):
        resolve_key(caller(), text)


def test_another_persons_key_reads_like_one_that_nobody_has() -> None:
    errors = []
    for user in (BEN, UserId(new_id())):
        with pytest.raises(SessionNotFound) as refused:
            resolve_key(caller(), key_of(user))
        errors.append(error_shape(refused.value))
        assert errors[-1].message == f"no session found: {key_of(user)}"
    assert errors[0].code == errors[1].code
    assert errors[0].details == errors[1].details


@pytest.mark.parametrize("length", [512, 511, 470])
def test_names_that_fit_the_wire_but_not_the_store(length: int) -> None:
    """The person's id is part of the stored key, so a name of 470 characters is too long in the end."""
    with pytest.raises(InvalidSessionKey, match="limit is 512"):
        resolve_key(caller(), "x" * length)


WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), min_size=1, max_size=20)


@given(WORDS.filter(str.strip))
@example("Bob")
@example(" bob ")
@example("İ")
def test_a_word_of_a_client_stays_itself_in_a_key(word: str) -> None:
    """The key that a list shows means the session that it is of."""
    key = key_of(ADA, f"id:{key_part(word)}")
    assert resolve_key(caller(), render_key(key)) == key


@given(WORDS.filter(str.strip), WORDS.filter(str.strip))
@example("Bob", "bob")
@example("bob", "bob ")
def test_two_words_are_two_parts(one: str, other: str) -> None:
    assert (key_part(one) == key_part(other)) == (one == other)
