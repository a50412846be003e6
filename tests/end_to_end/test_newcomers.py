"""Somebody new who is first heard of in a room."""

import asyncio
from pathlib import Path

from skynet_users.people import UserStore
from tests.end_to_end.test_memory import prompt
from tests.support.channel import FakeChannel
from tests.support.gateway import running_gateway
from tests.support.model_server import ModelServer

WELCOME = "begin with a short welcome"


async def test_a_room_welcomes_nobody_so_they_are_when_they_write_alone(tmp_path: Path) -> None:
    """SK-133: in a room the prompt says of nobody that they are new."""
    async with (
        ModelServer() as models,
        running_gateway(tmp_path, models=models, toml='[users]\nunknown = "create"\n') as gateway,
    ):
        chat = FakeChannel(gateway.app.ingress)
        await chat.ask("eve", "hello", room="den")
        assert WELCOME not in prompt(models)
        await chat.ask("eve", "hello")
        assert WELCOME in prompt(models)
        async with asyncio.timeout(40):
            while (await UserStore(gateway.app.database).by_name("eve")).needs_welcome:  # noted soon after the answer
                pass
        await chat.ask("eve", "hello")
        assert WELCOME not in prompt(models)
