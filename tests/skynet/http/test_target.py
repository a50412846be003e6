"""Which agent, model and session a request means."""

import pytest

from skynet.http.errors import HttpError
from skynet.http.target import Target, session_of, target_of
from skynet_memory.errors import SessionNotFound
from skynet_memory.ids import Role, UserId
from skynet_protocol.errors import RequestError
from skynet_users.caller import Caller

ANN = Caller(user_id=UserId("ann"), role=Role.USER, scopes=frozenset(), correlation_id="c")


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("skynet", Target("main", "")),
        ("Skynet", Target("main", "")),
        ("openclaw", Target("main", "")),
        ("openclaw:work", Target("work", "")),
        ("openclaw/Work", Target("work", "")),
        ("skynet/work", Target("work", "")),
        ("agent:work", Target("work", "")),
        ("openai/gpt-5.1", Target("main", "openai/gpt-5.1")),
        ("opus", Target("main", "opus")),
    ],
)
def test_model_names(model: str, target: Target) -> None:
    assert target_of(model, {}) == target


@pytest.mark.parametrize("header", ["x-openclaw-agent-id", "x-openclaw-agent"])
def test_a_header_chooses_the_agent(header: str) -> None:
    assert target_of("openclaw:work", {header: "home"}) == Target("home", "")
    assert target_of("openai/gpt-5.1", {header: "home"}) == Target("home", "openai/gpt-5.1")


@pytest.mark.parametrize(
    ("model", "headers", "param"),
    [
        ("openclaw:", {}, "model"),
        ("agent:main:main", {}, "model"),
        ("openclaw/../x", {}, "model"),
        ("skynet", {"x-openclaw-agent-id": "a b"}, "x-openclaw-agent-id"),
    ],
)
def test_what_is_no_agent_id(model: str, headers: dict[str, str], param: str) -> None:
    with pytest.raises(HttpError) as caught:
        target_of(model, headers)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_user_has_a_session_of_its_own() -> None:
    assert session_of(ANN, "main", {}, "bob@example.org") == "user:ann:agent:main:openai-user:bob@example.org"
    assert session_of(ANN, "work", {}, "a:b") == "user:ann:agent:work:openai-user:a:b"


def test_users_that_differ_in_case_do_not_share_a_session() -> None:
    keys = {session_of(ANN, "main", {}, user) for user in ("bob", "Bob", "BOB", " bob", "bob ")}
    assert len(keys) == 5
    assert session_of(ANN, "main", {}, "Bob") == session_of(ANN, "main", {}, "Bob")


def test_without_user_each_request_has_a_new_session() -> None:
    first, second = (session_of(ANN, "main", {}, "") for _ in range(2))
    assert first != second
    assert first.startswith("user:ann:agent:main:openai:")


@pytest.mark.parametrize(
    ("named", "agent", "key"),
    [
        ("main", "main", "user:ann:agent:main:main"),
        ("agent:work:x", "main", "user:ann:agent:work:x"),
        ("x", "work", "user:ann:agent:work:x"),
        ("agent:main:x", "work", "user:ann:agent:main:x"),
        ("user:ann:agent:main:x", "main", "user:ann:agent:main:x"),
    ],
)
def test_a_header_names_the_session(named: str, agent: str, key: str) -> None:
    assert session_of(ANN, agent, {"x-openclaw-session-key": named}, "bob") == key


def test_somebody_elses_session_is_not_there() -> None:
    with pytest.raises(SessionNotFound):
        session_of(ANN, "main", {"x-openclaw-session-key": "user:bob:agent:main:main"}, "")


@pytest.mark.parametrize("named", ["agent:x", "agent:A B:x", "a\x00b", "x" * 600])
def test_malformed_session_keys(named: str) -> None:
    with pytest.raises(RequestError):
        session_of(ANN, "main", {"x-openclaw-session-key": named}, "")


def test_malformed_users() -> None:
    with pytest.raises(RequestError):
        session_of(ANN, "main", {}, "a\nb")
