"""What the end-to-end tests of models and tools do again and again: people, their messages, and what came of them."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from skynet_memory.ids import Role
from skynet_users.credentials import CredentialStore
from skynet_users.people import UserStore
from tests.support.client import WireClient
from tests.support.gateway import RunningGateway

MAIN = "agent:main:main"


async def add_person(gateway: RunningGateway, role: Role, name: str = "") -> tuple[str, str]:
    """Somebody new: their id, and a token of theirs."""
    database = gateway.app.database
    user = await UserStore(database).add(name or f"Some {role}", role)
    credential = await CredentialStore(database).create_token(user.id, "test")
    return user.id, credential.token.reveal()


async def owner_of(gateway: RunningGateway) -> str:
    """Whoever has the gateway's token."""
    return (await UserStore(gateway.app.database).ensure_owner()).id


def files_of(home: Path, user_id: str) -> Path:
    """The folder that a person's tools work in."""
    return home / "users" / user_id / "files"


def tool(name: str, **arguments: Any) -> str:
    """The script words that call a tool."""
    return f"tool={name}:{json.dumps(arguments)}"


async def send(client: WireClient, message: str, *, key: str = MAIN, run_id: str = "", **params: Any) -> str:
    """Send a message; the id of its run."""
    run_id = run_id or str(uuid.uuid4())
    payload = {"sessionKey": key, "message": message, "idempotencyKey": run_id, **params}
    answer = await client.call("chat.send", payload)
    assert answer == {"runId": run_id, "status": "started"}, answer
    return run_id


async def say(client: WireClient, message: str, *, key: str = MAIN, **params: Any) -> dict[str, Any]:
    """Send a message and wait for the chat event that ends its run."""
    return await client.chat_end(await send(client, message, key=key, **params))


async def answer(client: WireClient, message: str, *, key: str = MAIN, **params: Any) -> str:
    """The text that a message was answered with, in full."""
    end = await say(client, message, key=key, **params)
    assert end["state"] == "final", end
    return text(end["message"])


def of_run(client: WireClient, run_id: str) -> list[dict[str, Any]]:
    """The events of a run in the order they came."""
    return [event for event in client.events if event["payload"].get("runId") == run_id]


async def history(client: WireClient, key: str = MAIN) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = (await client.call("chat.history", {"sessionKey": key, "limit": 1000}))["messages"]
    return messages


def text(message: dict[str, Any]) -> str:
    """The text of a message as clients see it."""
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def told(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Role and text of each message."""
    return [(message["role"], text(message)) for message in messages]
