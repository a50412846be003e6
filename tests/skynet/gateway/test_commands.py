"""What is a command and what is a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.gateway.commands import HELP, NAMES, Parsed, parse_command


@pytest.mark.parametrize(
    ("message", "name", "argument"),
    [
        ("/help", "/help", ""),
        ("  /help  ", "/help", ""),
        ("/HELP", "/help", ""),
        ("/Model mock/mock-2", "/model", "mock/mock-2"),
        ("/model   Mock/Mock-2  ", "/model", "Mock/Mock-2"),
        ("/think:high", "/think", "high"),
        ("/think: high", "/think", "high"),
        ("/new", "/new", ""),
        ("/new tell me more", "/new", "tell me more"),
        ("/new :) hello", "/new", ":) hello"),
        ("/reset\nfirst line\nsecond line", "/reset", "first line\nsecond line"),
        ("/new\tafter a tab", "/new", "after a tab"),
        ("/new\u00a0after another blank", "/new", "after another blank"),
        ("/new /help", "/new", "/help"),
    ],
)
def test_commands(message: str, name: str, argument: str) -> None:
    assert parse_command(message) == Parsed(name, argument)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "/",
        "//help",
        "help",
        "say /help",
        "/helpme",
        "/help/me",
        "/unknown",
        "/newer",
        ": /new",
        "/ new",
        "/\nnew",
        "/:",
    ],
)
def test_messages(message: str) -> None:
    assert parse_command(message) is None


@given(st.text())
def test_any_text_is_a_known_command_or_a_message(text: str) -> None:
    parsed = parse_command(text)
    if parsed is not None:
        assert parsed.name in NAMES
        assert text.strip().lower().startswith(parsed.name)
        assert parsed.argument == parsed.argument.strip()


@given(st.sampled_from(sorted(NAMES)), st.text())
def test_a_command_keeps_all_of_its_argument(name: str, argument: str) -> None:
    assert parse_command(f"{name} {argument}") == Parsed(name, argument.strip())


def test_the_help_names_every_command() -> None:
    assert {name for name in NAMES if name != "/commands"} <= set(HELP.replace(",", " ").split())
