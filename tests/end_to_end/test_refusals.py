"""Whoever is refused something for want of a permission is in the audit log with it, whatever the way in."""

from pathlib import Path

import httpx2
import pytest

from skynet_memory.ids import Role
from skynet_users.credentials import CredentialStore
from skynet_users.people import UserStore
from tests.end_to_end.scene import add_person, answer, tool
from tests.support.client import Refused
from tests.support.gateway import running_gateway
from tests.support.model_server import ModelServer


async def test_what_somebody_may_not_is_recorded_by_every_way_in(tmp_path: Path) -> None:
    """SK-193: a method, a command, a tool and a route."""
    async with ModelServer() as models:
        async with running_gateway(tmp_path, models=models) as gateway:
            kim, token = await add_person(gateway, Role.CHILD, "Kim")
            async with gateway.client(token=token) as client:
                with pytest.raises(Refused, match=r"not permitted: config\.read"):
                    await client.call("config.get", {})
                assert "sessions.write" in await answer(client, "/model mock/mock-2")
                assert "files.write" in await answer(client, tool("write_file", path="x", content="y"))
            bo = await UserStore(gateway.app.database).add("Bo", Role.USER, flags={"messages.send": False})
            created = await CredentialStore(gateway.app.database).create_token(bo.id, "test")
            async with httpx2.AsyncClient(base_url=gateway.http_url) as http:
                headers = {"Authorization": f"Bearer {created.token.reveal()}"}
                assert (await http.get("/v1/models", headers=headers)).status_code == 403
        async with running_gateway(tmp_path) as gateway, gateway.client() as owner:  # all that was to be noted is
            found = (await owner.call("audit.list", {"action": "permission.refused"}))["entries"]
    assert [(each["actor"], each["subject"], each["details"]["permission"]) for each in reversed(found)] == [
        (kim, "config.get", "config.read"),
        (kim, "/model", "sessions.write"),
        (kim, "write_file", "files.write"),
        (bo.id, "/v1/models", "messages.send"),
    ]


async def test_what_is_configured_of_a_role_holds(tmp_path: Path) -> None:
    """SK-122: flipped in the configuration, at a method and at a tool, and for nobody of another role."""
    toml = '[permissions.user]\n"config.read" = "none"\n[permissions.child]\n"files.write" = "own"\n'
    async with ModelServer() as models, running_gateway(tmp_path, models=models, toml=toml) as gateway:
        write = tool("write_file", path="x", content="y")
        _, token = await add_person(gateway, Role.USER)
        async with gateway.client(token=token) as user:
            with pytest.raises(Refused, match=r"not permitted: config\.read"):
                await user.call("config.get", {})
            assert "config.read" in await answer(user, "/whoami")
        _, token = await add_person(gateway, Role.CHILD)
        async with gateway.client(token=token) as child:
            assert "not for this person" not in await answer(child, write)
            assert (await child.call("users.get"))["permissions"]["files.write"] == "own"
        async with gateway.client() as owner:
            assert await owner.call("config.get", {})
