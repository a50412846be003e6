"""Is it alive, is it ready: for people, monitors and orchestrators. No authentication, nothing personal."""

import asyncio
import logging
from collections.abc import Callable

import orjson
from starlette.types import Receive, Scope, Send

from skynet.http.responses import send_json
from skynet.version import VERSION
from skynet_memory.database import Database
from skynet_protocol.errors import PROTOCOL_VERSION

log = logging.getLogger(__name__)

DATABASE_TIMEOUT_S = 2.0


class Health:
    """``/health``, ``/healthz``: the process answers. ``ws_clients`` counts connections that finished the handshake."""

    def __init__(self, connections: Callable[[], int]) -> None:
        self._connections = connections
        fields = {"status": "ok", "version": VERSION, "protocol": PROTOCOL_VERSION}
        self._head = orjson.dumps(fields)[:-1] + b',"ws_clients":'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, 200, b"%b%d}" % (self._head, self._connections()))


class Ready:
    """``/readyz``: whether a new request would be served: 503 while starting or shutting down, or when the database
    cannot be read.
    """

    def __init__(self, accepting: Callable[[], bool], database: Database) -> None:
        self._accepting = accepting
        self._database = database

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason = await self._obstacle()
        body = {"status": "unavailable", "reason": reason} if reason else {"status": "ready"}
        await send_json(send, 503 if reason else 200, orjson.dumps(body))

    async def _obstacle(self) -> str:
        if not self._accepting():
            return "starting or shutting down"
        try:
            async with asyncio.timeout(DATABASE_TIMEOUT_S):
                await self._database.fetchone("SELECT 1 FROM sqlite_schema LIMIT 1")
        except Exception as exc:
            log.warning("not ready: the database cannot be read: %s", exc)
            return "the database cannot be read"
        return ""
