"""Every way in has its permission."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from starlette.routing import Route

from skynet.gateway.authorize import METHOD_PERMISSIONS, ROUTE_PERMISSIONS, authorize_method, authorize_route
from skynet_memory.ids import Role, UserId
from skynet_protocol.methods import METHODS
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden
from skynet_users.permissions import Permission
from tests.support.gateway import RunningGateway, running_gateway

OPEN = {"connect", "health", "ping", "skills.bins", "node.invoke.result", "node.event"}


def caller(role: Role) -> Caller:
    return Caller(user_id=UserId("u"), role=role, scopes=frozenset(), correlation_id="c")


def test_every_method_has_a_rule() -> None:
    assert set(METHOD_PERMISSIONS) == set(METHODS)
    assert {name for name, permission in METHOD_PERMISSIONS.items() if permission is None} == OPEN


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_matrix_decides(method: str, role: Role) -> None:
    permission = METHOD_PERMISSIONS[method]
    if permission is None or caller(role).may(permission):
        authorize_method(caller(role), method)
    else:
        with pytest.raises(Forbidden):
            authorize_method(caller(role), method)


def test_what_no_rule_knows_is_not_let_through() -> None:
    with pytest.raises(KeyError):
        authorize_method(caller(Role.ADMIN), "nope")
    with pytest.raises(KeyError):
        authorize_route(caller(Role.ADMIN), "/nope")


def test_a_child_does_not_see_the_configuration() -> None:
    for method in ("config.get", "providers.list", "logs.tail", "node.invoke", "cron.add", "sessions.delete"):
        with pytest.raises(Forbidden):
            authorize_method(caller(Role.CHILD), method)
    for method in ("chat.send", "chat.history", "sessions.list", "memory.learn", "status", "agents.list"):
        authorize_method(caller(Role.CHILD), method)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path) as gateway:
        yield gateway


async def test_every_route_has_a_rule(gateway: RunningGateway) -> None:
    routes = {cast(Route, route).path for route in gateway.app.http.routes}
    assert routes == set(ROUTE_PERMISSIONS)
    assert {path for path, permission in ROUTE_PERMISSIONS.items() if permission is None} == {
        "/health",
        "/healthz",
        "/readyz",
    }


async def test_every_tool_names_a_permission(gateway: RunningGateway) -> None:
    tools = await gateway.app.toolbox.refresh()
    assert tools
    assert {tool.permission for tool in tools} <= set(Permission)
