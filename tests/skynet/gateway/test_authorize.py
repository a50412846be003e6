"""Every way in has its permission."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import httpx2
import pytest
from starlette.routing import Route

from skynet.gateway.authorize import METHOD_PERMISSIONS, ROUTE_PERMISSIONS, authorize_method, authorize_route
from skynet_memory.ids import Role, UserId
from skynet_protocol.methods import METHODS
from skynet_users.caller import Caller
from skynet_users.credentials import CredentialStore
from skynet_users.errors import Forbidden
from skynet_users.people import UserStore
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


async def test_every_route_asks_its_rule(gateway: RunningGateway) -> None:
    """SK-123: a flag takes the routes from a person as it does the methods."""
    database = gateway.app.database
    asked = {path: permission for path, permission in ROUTE_PERMISSIONS.items() if permission is not None}
    async with httpx2.AsyncClient(base_url=gateway.http_url.removesuffix("/")) as http:
        for path, permission in asked.items():
            for is_given in (True, False):
                user = await UserStore(database).add("Bo", Role.USER, flags={permission.value: is_given})
                token = (await CredentialStore(database).create_token(user.id, "test")).token.reveal()
                url = path.replace("{id:path}", "offline/assistant")
                verb = "POST" if path.endswith("completions") else "GET"
                answer = await http.request(verb, url, json={}, headers={"Authorization": f"Bearer {token}"})
                assert (answer.status_code == 403) is not is_given, (path, answer.text)
                assert is_given or f"not permitted: {permission}" in answer.text


async def test_every_tool_names_a_permission(gateway: RunningGateway) -> None:
    tools = await gateway.app.toolbox.refresh()
    assert tools
    assert {tool.permission for tool in tools} <= set(Permission)
