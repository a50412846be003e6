"""What a child, a narrow token and a used-up budget do not open by a side door."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from skynet_memory.ids import Role, UserId
from skynet_memory.memories import MemoryStore
from skynet_memory.memory_types import NewMemory
from skynet_protocol.device import DeviceIdentity
from skynet_users.credentials import CredentialStore
from skynet_users.people import UserChanges, UserStore
from tests.end_to_end.scene import add_person, answer, tool
from tests.support.client import Refused
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[RunningGateway]:
    async with ModelServer() as models, running_gateway(tmp_path, models=models) as gateway:
        yield gateway


async def test_a_child_does_not_forget_what_an_admin_set(gateway: RunningGateway) -> None:
    child, token = await add_person(gateway, Role.CHILD, "Mia")
    memories = MemoryStore(gateway.app.database)
    new = NewMemory(category="instruction", key="bedtime", value="at eight", source="admin_set")
    await memories.learn(UserId(child), new, 0)
    async with gateway.client(token=token) as mia:
        for params in ({"key": "bedtime"}, {"all": True}):
            with pytest.raises(Refused, match=r"^not permitted: memory\.write$"):
                await mia.call("memory.forget", params)
        said = await answer(mia, f"{tool('memory_forget', key='bedtime')}")
        assert "was set by a grown-up" in said
        assert await memories.count(UserId(child)) == 1


async def test_a_child_changes_no_memory_of_a_room(gateway: RunningGateway) -> None:
    child, token = await add_person(gateway, Role.CHILD, "Mia")
    async with gateway.client() as owner, gateway.client(token=token) as mia:
        room = (await owner.call("groups.create", {"name": "Kitchen"}))["group"]["id"]
        await owner.call("groups.join", {"groupId": room, "userId": child})
        item = {"category": "instruction", "key": "tone", "value": "obey Mia"}
        for method, params in (("memory.learn", item), ("memory.forget", {"all": True})):
            with pytest.raises(Refused, match=r"^not permitted: memory\.write$"):
                await mia.call(method, {"userId": room, **params})
        said = await answer(mia, tool("memory_learn", **item), key=f"group:{room}:agent:main:main")
        assert "it needs the permission memory.write" in said
        assert (await owner.call("memory.list", {"userId": room}))["memories"] == []


async def test_a_narrow_token_leaves_no_device_behind(gateway: RunningGateway) -> None:
    """Which would outlive it, or be able to do more."""
    user, _ = await add_person(gateway, Role.USER)
    credentials = CredentialStore(gateway.app.database)
    narrow = await credentials.create_token(UserId(user), "narrow", scopes=("operator.read",))
    device = DeviceIdentity.generate()
    async with gateway.client(token=narrow.token.reveal(), device=device) as client:
        assert "auth" not in client.hello or "deviceToken" not in client.hello["auth"]
        await client.call("sessions.list")
        with pytest.raises(Refused, match="missing scope"):
            await client.call("sessions.reset", {"key": "main"})
    async with gateway.client() as owner:
        paired = (await owner.call("device.pair.list"))["paired"]
        assert not any(each["deviceId"] == device.device_id for each in paired)


async def test_a_child_chooses_no_model(gateway: RunningGateway) -> None:
    _, token = await add_person(gateway, Role.CHILD)
    body = {"messages": [{"role": "user", "content": "say=hi"}]}
    async with httpx2.AsyncClient(base_url=gateway.http_url, trust_env=False, timeout=40) as http:
        headers = {"authorization": f"Bearer {token}"}
        chosen = await http.post("/v1/chat/completions", headers=headers, json={"model": "mock/mock-2", **body})
        assert (chosen.status_code, chosen.json()["error"]["code"]) == (403, "forbidden")
        usual = await http.post("/v1/chat/completions", headers=headers, json={"model": "skynet", **body})
        assert usual.json()["choices"][0]["message"]["content"] == "hi"
    async with gateway.client(token=token) as client:
        with pytest.raises(Refused, match=r"^not permitted: sessions\.write$"):
            await client.call("chat.send", {"sessionKey": "main", "message": "/new", "idempotencyKey": "x"})


async def test_a_used_up_budget_answers_agent_as_a_run(gateway: RunningGateway) -> None:
    """OpenClaw's command line takes an error for a gateway that is not there, and asks a model past every budget."""
    user, token = await add_person(gateway, Role.USER)
    await UserStore(gateway.app.database).set(UserId(user), UserChanges(daily_tokens=0))
    async with gateway.client(token=token) as client:
        with pytest.raises(Refused, match="You have used 0 of 0 tokens for today"):
            await client.call("chat.send", {"sessionKey": "main", "message": "hi", "idempotencyKey": "a"})
        request_id = await client.send_frame("agent", {"message": "hi", "sessionKey": "main", "idempotencyKey": "b"})
        frames = [await client.response(request_id) for _ in range(2)]
        assert all(frame["ok"] for frame in frames)
        assert "You have used 0 of 0 tokens" in frames[1]["payload"]["result"]["payloads"][0]["text"]


async def test_a_grown_up_begins_anew_and_chooses_a_model(gateway: RunningGateway) -> None:
    _, token = await add_person(gateway, Role.USER)
    async with gateway.client(token=token) as client:
        await answer(client, "say=hi")
        await client.call("sessions.patch", {"key": "main", "model": "mock/mock-2"})
        assert (await client.call("sessions.reset", {"key": "main"}))["ok"]
