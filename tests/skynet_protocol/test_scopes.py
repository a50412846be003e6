import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_protocol.scopes import ALL_OPERATOR_SCOPES, covers, greatest_scopes, limit_scopes, satisfies

ADMIN, READ, WRITE, APPROVALS, PAIRING, TALK = ALL_OPERATOR_SCOPES


@pytest.mark.parametrize(
    ("granted", "required", "expected"),
    [
        ([ADMIN], READ, True),
        ([ADMIN], APPROVALS, True),
        ([ADMIN], TALK, True),
        ([ADMIN], "operator.future", True),
        ([ADMIN], "node.run", False),
        ([WRITE], READ, True),
        ([WRITE], WRITE, True),
        ([READ], WRITE, False),
        ([WRITE], APPROVALS, False),
        ([WRITE, READ, APPROVALS, PAIRING], ADMIN, False),
        ([], READ, False),
        (["node.run"], "node.run", True),
    ],
)
def test_satisfaction(granted, required, expected):
    assert satisfies(granted, required) is expected
    assert satisfies(frozenset(granted), required) is expected


def test_covering_is_satisfying_each():
    assert covers([WRITE, PAIRING], [READ, PAIRING])
    assert not covers([WRITE], [READ, PAIRING])
    assert covers([], [])


def test_the_greatest_scopes_of_each_role():
    assert greatest_scopes("admin") == frozenset(ALL_OPERATOR_SCOPES)
    assert greatest_scopes("user") == {READ, WRITE, APPROVALS}
    assert greatest_scopes("child") == {READ, WRITE}
    assert greatest_scopes("nobody") == frozenset()


@pytest.mark.parametrize(
    ("requested", "role", "expected"),
    [
        ([ADMIN, READ, WRITE, APPROVALS, PAIRING], "admin", (ADMIN, READ, WRITE, APPROVALS, PAIRING)),
        ([ADMIN], "admin", (ADMIN,)),
        ([ADMIN], "user", (READ, WRITE, APPROVALS)),
        ([ADMIN], "child", (READ, WRITE)),
        ([READ], "user", (READ,)),
        ([WRITE], "child", (WRITE,)),
        ([APPROVALS], "child", ()),
        ([PAIRING, READ], "user", (READ,)),
        ([], "admin", ()),
        ([ADMIN], "nobody", ()),
        ([READ, READ], "admin", (READ,)),
    ],
)
def test_requests_are_cut_to_the_role(requested, role, expected):
    assert limit_scopes(requested, greatest_scopes(role)) == expected


@given(st.lists(st.sampled_from(ALL_OPERATOR_SCOPES) | st.text()), st.sampled_from(["admin", "user", "child", "x"]))
def test_cut_never_widened(requested, role):
    limited = limit_scopes(requested, greatest_scopes(role))
    assert covers(requested, limited)
    assert covers(greatest_scopes(role), limited)
