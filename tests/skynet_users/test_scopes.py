import pytest

from skynet_users.scopes import covers


@pytest.mark.parametrize(
    ("granted", "requested", "role", "expected"),
    [
        ([], [], "operator", True),
        (["operator.read"], [], "operator", True),
        ([], ["operator.read"], "operator", False),
        (["operator.read"], ["operator.read"], "operator", True),
        (["operator.read"], ["operator.write"], "operator", False),
        (["operator.write"], ["operator.read"], "operator", True),
        (["operator.write"], ["operator.read", "operator.approvals"], "operator", False),
        (["operator.admin"], ["operator.read", "operator.pairing", "operator.talk.secrets"], "operator", True),
        (["operator.admin"], ["node.something"], "operator", False),
        (["operator.pairing"], ["operator.read"], "operator", False),
        (["operator.admin"], ["operator.read"], "node", False),
        (["operator.write"], ["operator.read"], "node", False),
        (["camera"], ["camera"], "node", True),
    ],
)
def test_covers(granted: list[str], requested: list[str], role: str, expected: bool) -> None:
    assert covers(granted, requested, role=role) is expected
