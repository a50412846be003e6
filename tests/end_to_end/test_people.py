"""People as they meet the gateway: a risky tool waits for somebody's yes, and what somebody loses ends at once."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skynet_memory.ids import Role
from tests.end_to_end.scene import add_person, files_of, say, send, text, tool
from tests.support.client import Refused, WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer

WRITE = f"{tool('write_file', path='list.txt', content='buy milk')} next-round say=done"


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def gateway(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, models=models) as running:
        yield running


async def requested(client: WireClient) -> dict[str, Any]:
    """The next question that somebody puts."""
    event = await client.event(lambda e: e["event"] == "approvals.requested")
    return dict(event["payload"]["approval"])


async def test_a_risky_tool_waits_for_a_yes(gateway: RunningGateway, tmp_path: Path) -> None:
    user, token = await add_person(gateway, Role.USER, "Bo")
    async with gateway.client() as admin:
        await admin.call("users.set", {"userId": user, "requiresApproval": True})
        async with gateway.client(token=token) as bo:
            run_id = await send(bo, WRITE)
            asked = await requested(admin)
            assert (asked["kind"], asked["requesterName"]) == ("tool_call", "Bo")
            assert asked["subject"] == {
                "tool": "write_file",
                "arguments": {"path": "list.txt", "content": "buy milk"},
            }
            file = files_of(tmp_path, user) / "list.txt"
            assert not file.exists()
            # Not even with the scope for it does who asked decide.
            with pytest.raises(Refused, match="somebody else has to decide"):
                await bo.call("approvals.decide", {"id": asked["id"], "approve": True})
            await admin.call("approvals.decide", {"id": asked["id"], "approve": True})
            end = await bo.chat_end(run_id)
            assert text(end["message"]).endswith("done")
            assert file.read_text() == "buy milk"
            await bo.event(lambda e: e["event"] == "approvals.resolved" and e["payload"]["status"] == "approved")
            (used,) = (await bo.call("approvals.list"))["approvals"]
            assert used["status"] == "used"


async def test_a_no_is_told_to_the_model_and_nothing_is_done(
    gateway: RunningGateway, models: ModelServer, tmp_path: Path
) -> None:
    user, token = await add_person(gateway, Role.USER, "Bo")
    async with gateway.client() as admin:
        await admin.call("users.set", {"userId": user, "requiresApproval": True})
        async with gateway.client(token=token) as bo:
            run_id = await send(bo, WRITE)
            asked = await requested(admin)
            params = {"id": asked["id"], "approve": False, "reason": "not today"}
            await admin.call("approvals.decide", params)
            assert (await bo.chat_end(run_id))["state"] == "final"
    assert not (files_of(tmp_path, user) / "list.txt").exists()
    assert "not carried out: denied: not today" in str(models.bodies[-1]["messages"])


@pytest.mark.parametrize("changes", [{"role": "child"}, {"flags": {"files.write": False}}, {"disabled": True}])
async def test_who_may_less_is_out_at_once(gateway: RunningGateway, changes: dict[str, Any]) -> None:
    user, token = await add_person(gateway, Role.USER)
    async with gateway.client() as admin, gateway.client(token=token) as bo:
        await admin.call("users.set", {"userId": user, "language": "fr"})
        await bo.call("users.get")
        await admin.call("users.set", {"userId": user, **changes})
        assert await bo.closed() == (1008, "permissions changed")
        await admin.call("users.get")


async def test_a_token_that_is_revoked_closes_what_it_let_in(gateway: RunningGateway) -> None:
    user, token = await add_person(gateway, Role.USER)
    async with gateway.client() as admin, gateway.client(token=token) as bo:
        other = (await bo.call("users.tokens.create", {"name": "other"}))["token"]
        async with gateway.client(token=other) as second:
            (first, _) = (await second.call("users.tokens.list"))["tokens"]
            await admin.call("users.tokens.revoke", {"userId": user, "id": first["id"]})
            assert await bo.closed() == (1008, "token revoked")
            assert (await second.call("users.get"))["user"]["id"] == user


async def test_commands_about_people_answer_in_a_conversation(gateway: RunningGateway) -> None:
    child, child_token = await add_person(gateway, Role.CHILD, "Cy")
    async with gateway.client() as admin, gateway.client(token=child_token) as cy:
        await cy.call("approvals.request", {"summary": "may I stay up?"})
        shown = (await requested(admin))["id"][-8:]
        listed = await say(admin, "/approvals")
        assert text(listed["message"]) == f"{shown} - Cy: may I stay up?"
        approved = await say(admin, f"/approve {shown}")
        assert text(approved["message"]) == "Approved: may I stay up?"
        assert "Role: child" in text((await say(cy, "/whoami"))["message"])
        refused = await say(cy, "/elevated on")
        assert text(refused["message"]) == "You may not do that: it needs the permission commands.run."
        linked = await say(cy, "/link")
        assert "/link " in text(linked["message"])
        assert (await admin.call("identities.list", {"userId": child}))["identities"] == []
