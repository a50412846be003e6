"""Who may call what, in the order of checks and with the texts of OPENCLAW-V3 6.1."""

import pytest

from skynet_protocol.errors import RequestError, UnauthorizedRole
from skynet_protocol.methods import LISTED_METHODS, METHODS, authorize
from skynet_protocol.scopes import ALL_OPERATOR_SCOPES

ADMIN = ("operator.admin",)
NODE_ONLY = {"node.invoke.result", "node.event", "skills.bins"}
HIDDEN = {
    "connect",
    "poll",
    "sessions.resolve",
    "sessions.usage",
    "sessions.usage.timeseries",
    "sessions.usage.logs",
    "chat.inject",
    "web.login.start",
    "web.login.wait",
    "push.test",
}


def refusal(method: str, role: str, scopes: tuple[str, ...]) -> str | None:
    try:
        authorize(method, role, scopes)
    except RequestError as error:
        assert error.code == "INVALID_REQUEST"
        return error.message
    return None


def test_hello_names_openclaws_92_methods_in_its_order_and_then_ours():
    assert len(LISTED_METHODS) == 157
    assert LISTED_METHODS[:4] == ("health", "doctor.memory.status", "logs.tail", "channels.status")
    assert LISTED_METHODS[89:93] == ("chat.history", "chat.abort", "chat.send", "ping")
    assert LISTED_METHODS[93:98] == (
        "agent.status",
        "agent.model",
        "providers.list",
        "providers.test",
        "providers.models",
    )
    assert {name for name, spec in METHODS.items() if not spec.listed} == HIDDEN
    assert len(METHODS) == 167
    assert all(name == spec.name for name, spec in METHODS.items())


@pytest.mark.parametrize("role", ["operator", "node"])
@pytest.mark.parametrize("method", ["health", "ping"])
def test_any_connection_may_ask_for_health_and_ping(method, role):
    assert refusal(method, role, ()) is None


@pytest.mark.parametrize(
    ("method", "scope"),
    [
        ("status", "operator.read"),
        ("config.get", "operator.read"),
        ("chat.history", "operator.read"),
        ("sessions.resolve", "operator.read"),
        ("chat.send", "operator.write"),
        ("agent.wait", "operator.write"),
        ("poll", "operator.write"),
        ("push.test", "operator.write"),
        ("exec.approval.resolve", "operator.approvals"),
        ("device.token.rotate", "operator.pairing"),
        ("node.rename", "operator.pairing"),
        ("config.set", "operator.admin"),
        ("exec.approvals.get", "operator.admin"),
        ("sessions.patch", "operator.write"),
        ("chat.inject", "operator.admin"),
        ("connect", "operator.admin"),
        ("wizard.status", "operator.admin"),
        ("nope.nope", "operator.admin"),
    ],
)
def test_a_missing_scope_is_named(method, scope):
    others = tuple(other for other in ALL_OPERATOR_SCOPES if other not in (scope, "operator.admin", "operator.write"))
    assert refusal(method, "operator", others) == f"missing scope: {scope}"
    if method in METHODS:
        assert refusal(method, "operator", (scope,)) is None


def test_admin_passes_everything_but_what_is_a_nodes():
    for method in METHODS:
        expected = "unauthorized role: operator" if method in NODE_ONLY else None
        assert refusal(method, "operator", ADMIN) == expected


def test_write_implies_read_but_not_the_reverse():
    assert refusal("chat.history", "operator", ("operator.write",)) is None
    assert refusal("chat.send", "operator", ("operator.read",)) == "missing scope: operator.write"


def test_only_an_administrator_learns_that_a_method_is_unknown():
    assert refusal("nope", "operator", ()) == "missing scope: operator.admin"
    assert refusal("nope", "operator", ADMIN) == "unknown method: nope"
    with pytest.raises(RequestError) as caught:
        authorize("nope", "operator", ADMIN)
    assert caught.value.details == {"code": "METHOD_NOT_FOUND"}


def test_a_node_may_call_its_own_methods_and_nothing_else():
    allowed = {method for method in METHODS if refusal(method, "node", ADMIN) is None}
    assert allowed == NODE_ONLY | {"health", "ping"}
    assert refusal("chat.send", "node", ADMIN) == "unauthorized role: node"
    assert refusal("nope", "node", ADMIN) == "unauthorized role: node"


def test_an_operator_may_not_act_as_a_node():
    for method in NODE_ONLY:
        with pytest.raises(UnauthorizedRole, match="unauthorized role: operator"):
            authorize(method, "operator", ADMIN)


def test_another_role_may_call_nothing():
    with pytest.raises(UnauthorizedRole, match="unauthorized role: guest"):
        authorize("status", "guest", ADMIN)


def test_a_long_name_is_not_repeated_whole():
    message = refusal("x" * 100_000, "operator", ADMIN)
    assert message is not None
    assert len(message) < 300
