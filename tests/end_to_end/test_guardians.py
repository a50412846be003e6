"""A child's conversations are its own: a guardian reads them only where a setting says so, and on the record."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skynet_memory.ids import Role, UserId
from skynet_users.guardians import GuardianStore
from tests.end_to_end.scene import add_person, answer, told
from tests.support.client import Refused
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[RunningGateway]:
    async with ModelServer() as models, running_gateway(tmp_path, models=models) as gateway:
        yield gateway


async def test_a_guardian_reads_only_what_a_setting_opens_and_it_is_recorded(gateway: RunningGateway) -> None:
    child, child_token = await add_person(gateway, Role.CHILD, "Mia")
    parent, parent_token = await add_person(gateway, Role.USER, "Ben")
    guardians = GuardianStore(gateway.app.database)
    await guardians.set(UserId(child), UserId(parent))
    key = f"user:{child}:agent:main:main"
    async with (
        gateway.client(token=child_token) as mia,
        gateway.client(token=parent_token) as ben,
        gateway.client() as owner,
    ):
        assert await answer(mia, "say=moo") == "moo"
        for reader in (ben, owner):
            with pytest.raises(Refused, match="no session found"):
                await reader.call("chat.history", {"sessionKey": key})
        await guardians.set(UserId(child), UserId(parent), reads_transcripts=True)
        history = await ben.call("chat.history", {"sessionKey": key})
        assert told(history["messages"])[-1] == ("assistant", "moo")
        with pytest.raises(Refused, match="no session found"):  # reading is all
            await ben.call("chat.send", {"sessionKey": key, "message": "hi", "idempotencyKey": "x"})
        with pytest.raises(Refused, match="no session found"):
            await owner.call("chat.history", {"sessionKey": key})
        (entry,) = (await owner.call("audit.list", {"action": "transcript.read"}))["entries"]
        assert (entry["actor"], entry["subject"]) == (parent, child)
