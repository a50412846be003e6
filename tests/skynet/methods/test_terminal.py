"""What ``terminal.*`` makes of its params; what comes of it is in tests/end_to_end/test_terminal.py."""

import pytest
from msgspec import UNSET

from skynet.gateway.dispatch import collect
from skynet.methods.terminal import TerminalMethods, _typed, given
from skynet_protocol.errors import RequestError
from skynet_protocol.methods import METHODS
from skynet_protocol.scopes import Scope
from skynet_protocol.terminal import TerminalWriteParams


def test_all_of_them_are_served() -> None:
    """SK-182, SK-183."""
    table = collect(TerminalMethods(None, None, None))  # type: ignore[arg-type]
    assert table.keys() == {name for name in METHODS if name.startswith("terminal.")}
    assert len(table) == 15


def test_only_looking_needs_only_reading() -> None:
    looking = {"job_status", "job_list", "job_output", "read", "list", "subscribe", "unsubscribe"}
    for name, spec in METHODS.items():
        namespace, _, action = name.partition(".")
        if namespace == "terminal":
            assert spec.scope == (Scope.READ if action in looking else Scope.WRITE)


@pytest.mark.parametrize(
    ("params", "typed"),
    [
        ({"data": "Zoë 🙂\x03"}, "Zoë 🙂\x03".encode()),
        ({"data": ""}, b""),
        ({"data": "\ud800"}, b"?"),
        ({"data_base64": "AP8="}, b"\x00\xff"),
        ({"data_base64": ""}, b""),
    ],
)
def test_what_is_typed(params: dict[str, str], typed: bytes) -> None:
    assert _typed(TerminalWriteParams(terminal_id="t", **params)) == typed


@pytest.mark.parametrize(
    "params", [{}, {"data": "x", "data_base64": "eA=="}, {"data_base64": "eA"}, {"data_base64": "é"}]
)
def test_what_cannot_be_typed(params: dict[str, str]) -> None:
    with pytest.raises(RequestError, match=r"invalid terminal\.write params"):
        _typed(TerminalWriteParams(terminal_id="t", **params))


def test_what_is_not_given() -> None:
    assert given(UNSET, "x") == "x"
    assert given("", "x") == ""
