"""What is kept of nodes beside their devices: given names, and OpenClaw's older store (OPENCLAW-V3 6.13).

A node of the older store is no device: somebody who may pair asks for it under an id of its own choice, approves it and
gets a token, which ``verify`` recognises. It is never consulted when a client connects. Everything belongs to the
person who asked; nobody else sees it, not even an admin.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from skynet_memory.database import Database, Row, Statements
from skynet_memory.ids import DeviceId, UserId, new_id
from skynet_memory.ids import now_ms as current_ms
from skynet_memory.secrets import Secret, random_token
from skynet_users.errors import TooManyPending, UnknownNode, UnknownPairingRequest

PENDING_MS: Final = 5 * 60 * 1000
"""How long a request waits after it was made last."""
MAX_PENDING: Final = 20
"""Requests of one person that may wait."""
MAX_BRIDGE_NODES: Final = 100
"""Nodes of one person in the older store; then the one that was approved first is forgotten."""

Described: TypeAlias = Mapping[str, Any]
"""What a node of the older store says of itself: texts and lists of words by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeRequest:
    request_id: str
    node_id: str
    described: Described
    silent: bool
    is_repair: bool
    """The node was approved before."""
    requested_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeNode:
    node_id: str
    described: Described
    created_at_ms: int
    approved_at_ms: int
    last_connected_at_ms: int | None
    """When its token was shown last."""


class NodeStore:
    """``now_ms`` is the time to act at; without it, the current one."""

    def __init__(self, db: Database) -> None:
        self._db = db

    # Names of devices

    async def names(self, owner: UserId) -> dict[str, str]:
        """The names that a person gave to nodes, by device."""
        rows = await self._db.fetchall("SELECT device_id, display_name FROM node_names WHERE owner = ?", (owner,))
        return {row["device_id"]: row["display_name"] for row in rows}

    async def rename(self, owner: UserId, node_id: str, display_name: str) -> None:
        """Name a node, whatever it calls itself: a paired device, one of the older store, or both.

        Raises:
            UnknownNode: neither is this person's.
        """

        def work(tx: Statements) -> None:
            named = tx.execute(
                "INSERT INTO node_names (device_id, owner, display_name)"
                " SELECT id, owner, :name FROM devices WHERE id = :id AND owner = :owner"
                " AND EXISTS (SELECT 1 FROM json_each(roles) WHERE value = 'node')"
                " ON CONFLICT (device_id) DO UPDATE SET display_name = excluded.display_name, owner = excluded.owner",
                {"name": display_name, "id": DeviceId(node_id), "owner": owner},
            )
            named += tx.execute(
                "UPDATE bridge_nodes SET described = json_set(described, '$.display_name', ?)"
                " WHERE owner = ? AND node_id = ?",
                (display_name, owner, node_id),
            )
            if not named:
                raise UnknownNode

        await self._db.write(work)

    # The older store

    async def request(
        self, owner: UserId, node_id: str, described: Described, *, silent: bool = False, now_ms: int | None = None
    ) -> tuple[BridgeRequest, bool]:
        """Ask for a node, and whether that is new: a second request for the same node is merged into the first.

        Raises:
            TooManyPending: so many wait already.
        """
        at_ms, request_id = _at(now_ms), new_id()

        def work(tx: Statements) -> tuple[BridgeRequest, bool]:
            tx.execute("DELETE FROM bridge_requests WHERE requested_at_ms <= ?", (at_ms - PENDING_MS,))
            earlier = tx.fetchone("SELECT * FROM bridge_requests WHERE owner = ? AND node_id = ?", (owner, node_id))
            waiting = tx.fetchone("SELECT count(*) AS n FROM bridge_requests WHERE owner = ?", (owner,))
            if earlier is None and waiting is not None and waiting["n"] >= MAX_PENDING:
                raise TooManyPending(MAX_PENDING)
            row = tx.fetchone(
                "INSERT INTO bridge_requests (id, owner, node_id, described, silent, is_repair, requested_at_ms)"
                " VALUES (:id, :owner, :node_id, :described, :silent,"
                " EXISTS (SELECT 1 FROM bridge_nodes WHERE owner = :owner AND node_id = :node_id), :at_ms)"
                " ON CONFLICT (owner, node_id) DO UPDATE SET described = excluded.described,"
                " silent = min(silent, excluded.silent), is_repair = excluded.is_repair,"
                " requested_at_ms = excluded.requested_at_ms RETURNING *",
                {
                    "id": request_id,
                    "owner": owner,
                    "node_id": node_id,
                    "described": _write(described),
                    "silent": silent,
                    "at_ms": at_ms,
                },
            )
            assert row is not None, "an upsert returns its row"
            return _read_request(row), earlier is None

        return await self._db.write(work)

    async def pending(self, owner: UserId, *, now_ms: int | None = None) -> list[BridgeRequest]:
        """What waits, the newest first."""
        rows = await self._db.fetchall(
            "SELECT * FROM bridge_requests WHERE owner = ? AND requested_at_ms > ?"
            " ORDER BY requested_at_ms DESC, id DESC",
            (owner, _at(now_ms) - PENDING_MS),
        )
        return [_read_request(row) for row in rows]

    async def paired(self, owner: UserId) -> list[BridgeNode]:
        """The one approved last first."""
        rows = await self._db.fetchall(
            "SELECT * FROM bridge_nodes WHERE owner = ? ORDER BY approved_at_ms DESC, node_id", (owner,)
        )
        return [_read_node(row) for row in rows]

    async def approve(self, owner: UserId, request_id: str, *, now_ms: int | None = None) -> tuple[BridgeNode, Secret]:
        """Take the node in, and its new token, which only the node keeps.

        Raises:
            UnknownPairingRequest: none, or too old.
        """
        at_ms, token = _at(now_ms), Secret(random_token(32))

        def work(tx: Statements) -> BridgeNode:
            request = _take(tx, owner, request_id, at_ms)
            row = tx.fetchone(
                "INSERT INTO bridge_nodes (owner, node_id, described, token_hash, created_at_ms, approved_at_ms)"
                " VALUES (:owner, :node_id, :described, :hash, :at_ms, :at_ms) ON CONFLICT (owner, node_id) DO UPDATE"
                " SET described = excluded.described, token_hash = excluded.token_hash, approved_at_ms = :at_ms"
                " RETURNING *",
                {
                    "owner": owner,
                    "node_id": request.node_id,
                    "described": _write(request.described),
                    "hash": _hash(token.reveal()),
                    "at_ms": at_ms,
                },
            )
            assert row is not None, "an upsert returns its row"
            tx.execute(
                "DELETE FROM bridge_nodes WHERE owner = :owner AND node_id NOT IN (SELECT node_id FROM bridge_nodes"
                " WHERE owner = :owner ORDER BY approved_at_ms DESC, node_id LIMIT :most)",
                {"owner": owner, "most": MAX_BRIDGE_NODES},
            )
            return _read_node(row)

        return await self._db.write(work), token

    async def reject(self, owner: UserId, request_id: str, *, now_ms: int | None = None) -> BridgeRequest:
        """Drop the request, and return it.

        Raises:
            UnknownPairingRequest: none, or too old.
        """
        at_ms = _at(now_ms)
        return await self._db.write(lambda tx: _take(tx, owner, request_id, at_ms))

    async def verify(self, owner: UserId, node_id: str, token: str, *, now_ms: int | None = None) -> BridgeNode | None:
        """The node, if this is its token. Compares in constant time; notes the use."""
        at_ms, offered = _at(now_ms), _hash(token)

        def work(tx: Statements) -> BridgeNode | None:
            row = tx.fetchone("SELECT * FROM bridge_nodes WHERE owner = ? AND node_id = ?", (owner, node_id))
            if not hmac.compare_digest(b"" if row is None else row["token_hash"], offered) or row is None:
                return None
            tx.execute(
                "UPDATE bridge_nodes SET last_connected_at_ms = ? WHERE owner = ? AND node_id = ?",
                (at_ms, owner, node_id),
            )
            return _read_node(row)

        return await self._db.write(work)


def _take(tx: Statements, owner: UserId, request_id: str, at_ms: int) -> BridgeRequest:
    row = tx.fetchone(
        "DELETE FROM bridge_requests WHERE id = ? AND owner = ? AND requested_at_ms > ? RETURNING *",
        (request_id, owner, at_ms - PENDING_MS),
    )
    if row is None:
        raise UnknownPairingRequest
    return _read_request(row)


def _at(now_ms: int | None) -> int:
    return current_ms() if now_ms is None else now_ms


def _hash(token: str) -> bytes:
    """Tokens are long and random: one round is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _write(described: Described) -> str:
    return msgspec.json.encode(described).decode()


def _read_request(row: Row) -> BridgeRequest:
    return BridgeRequest(
        request_id=row["id"],
        node_id=row["node_id"],
        described=msgspec.json.decode(row["described"]),
        silent=bool(row["silent"]),
        is_repair=bool(row["is_repair"]),
        requested_at_ms=row["requested_at_ms"],
    )


def _read_node(row: Row) -> BridgeNode:
    return BridgeNode(
        node_id=row["node_id"],
        described=msgspec.json.decode(row["described"]),
        created_at_ms=row["created_at_ms"],
        approved_at_ms=row["approved_at_ms"],
        last_connected_at_ms=row["last_connected_at_ms"],
    )
