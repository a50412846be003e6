"""What a person proves with: a password, and personal tokens.

Passwords are kept as argon2id hashes. Personal tokens are random, so their SHA-256 is enough, and finds them by index.
"""

import asyncio
import hashlib
import json
import secrets
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from skynet_memory.database import Database, Row, Statements
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import UserId, new_id
from skynet_memory.ids import now_ms as _now_ms
from skynet_memory.secrets import Secret
from skynet_users.errors import UnknownUser
from skynet_users.people import User, read_user

PERSONAL_TOKEN_PREFIX: Final = "sk-sky-"  # noqa: S105 - not a secret

_LAST_USED_STEP_MS: Final = 60_000
"""How exact ``last_used_at_ms`` is, so that not every request is a write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    """A personal token without the token."""

    id: str
    name: str
    created_at_ms: int
    last_used_at_ms: int | None
    """Exact to a minute."""
    scopes: frozenset[str] | None
    """None: all that the person's role allows."""
    expires_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedToken:
    id: str
    token: Secret
    """The only time it can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """What a personal token proved."""

    user: User
    credential_id: str
    scopes: frozenset[str] | None
    """The most this token may do; None: all that the person's role allows."""
    expires_at_ms: int | None


class CredentialStore:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._hashing = asyncio.Lock()
        """One password at a time: each takes 64 MiB and a processor, and anybody may send many."""

    async def create_token(
        self, owner: UserId, name: str, *, scopes: Collection[str] = (), expires_at_ms: int | None = None
    ) -> CreatedToken:
        """
        Args:
            scopes: the most it may do; none given: all that the person's role allows, now or later.

        Raises:
            UnknownUser: there is no such person; a group has no tokens.
        """
        token = Secret(PERSONAL_TOKEN_PREFIX + secrets.token_urlsafe(32))
        created = CreatedToken(id=new_id(), token=token)
        limits = (json.dumps(sorted(set(scopes))) if scopes else None, expires_at_ms)
        values = (created.id, name, _token_hash(token.reveal()), _now_ms(), *limits, owner)
        added = await self._db.write(
            lambda tx: tx.execute(
                "INSERT INTO credentials (id, owner, kind, name, hash, created_at_ms, scopes, expires_at_ms)"
                " SELECT ?, id, 'token', ?, ?, ?, ?, ? FROM users WHERE id = ? AND kind = 'person'",
                values,
            )
        )
        if not added:
            raise UnknownUser(owner)
        return created

    async def lookup(self, token: str, now_ms: int | None = None) -> Authenticated | None:
        """Whose personal token this is; None also if it has expired, or the person is disabled."""
        if not token.startswith(PERSONAL_TOKEN_PREFIX):
            return None
        row = await self._db.fetchone(
            "SELECT users.*, credentials.id AS credential, last_used_at_ms, scopes, expires_at_ms FROM credentials"
            " JOIN users ON users.id = credentials.owner"
            " WHERE credentials.kind = 'token' AND hash = ? AND NOT users.disabled",
            (_token_hash(token),),
        )
        at_ms = _now_ms() if now_ms is None else now_ms
        if row is None or (row["expires_at_ms"] is not None and row["expires_at_ms"] <= at_ms):
            return None
        user, credential = read_user(row), row["credential"]
        if at_ms - (row["last_used_at_ms"] or 0) >= _LAST_USED_STEP_MS:
            with suppress(StorageUnavailable):  # nobody is locked out because a note cannot be written
                await self._db.write(
                    lambda tx: tx.execute(
                        "UPDATE credentials SET last_used_at_ms = ? WHERE id = ? AND owner = ?",
                        (at_ms, credential, user.id),
                    )
                )
        return Authenticated(
            user=user, credential_id=credential, scopes=_scopes(row), expires_at_ms=row["expires_at_ms"]
        )

    async def tokens(self, owner: UserId) -> list[TokenInfo]:
        """In the order they were made, also those that have expired."""
        rows = await self._db.fetchall(
            "SELECT * FROM credentials WHERE owner = ? AND kind = 'token' ORDER BY created_at_ms, id", (owner,)
        )
        return [
            TokenInfo(
                id=row["id"],
                name=row["name"],
                created_at_ms=row["created_at_ms"],
                last_used_at_ms=row["last_used_at_ms"],
                scopes=_scopes(row),
                expires_at_ms=row["expires_at_ms"],
            )
            for row in rows
        ]

    async def remove_token(self, owner: UserId, token_id: str) -> bool:
        return bool(
            await self._db.write(
                lambda tx: tx.execute(
                    "DELETE FROM credentials WHERE owner = ? AND id = ? AND kind = 'token'", (owner, token_id)
                )
            )
        )

    async def set_password(self, owner: UserId, password: Secret) -> None:
        """Replaces an earlier one. Hashing takes tens of milliseconds, in a thread."""
        async with self._hashing:
            hashed = await asyncio.to_thread(_hash_password, password.reveal())
        values = (new_id(), owner, hashed, _now_ms())
        await self._db.write(
            lambda tx: tx.execute(
                "INSERT INTO credentials (id, owner, kind, name, hash, created_at_ms)"
                " VALUES (?, ?, 'password', '', ?, ?) ON CONFLICT (owner) WHERE kind = 'password'"
                " DO UPDATE SET hash = excluded.hash, created_at_ms = excluded.created_at_ms",
                values,
            )
        )

    async def has_password(self, owner: UserId) -> bool:
        """Whether one is set."""
        row = await self._db.fetchone("SELECT 1 FROM credentials WHERE owner = ? AND kind = 'password'", (owner,))
        return row is not None

    async def check_password(self, owner: UserId, password: str) -> bool:
        """False also for a person who has none or is disabled, who takes as long to refuse.

        Weak old hashes are renewed.
        """
        row = await self._db.fetchone(
            "SELECT hash FROM credentials JOIN users ON users.id = credentials.owner"
            " WHERE owner = ? AND credentials.kind = 'password' AND NOT users.disabled",
            (owner,),
        )
        stored = None if row is None else row["hash"]
        async with self._hashing:
            renewed = await asyncio.to_thread(_check_password, stored, password)
        if renewed is None:
            return False
        if renewed != stored:

            def work(tx: Statements) -> None:
                tx.execute(
                    "UPDATE credentials SET hash = ? WHERE owner = ? AND kind = 'password' AND hash = ?",
                    (renewed, owner, stored),
                )

            await self._db.write(work)
        return True


def _scopes(row: Row) -> frozenset[str] | None:
    return None if row["scopes"] is None else frozenset(json.loads(row["scopes"]))


def _token_hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _hash_password(password: str) -> str:
    from argon2 import PasswordHasher  # costs start-up time that most starts do not need

    return PasswordHasher().hash(password.encode("utf-8", "surrogatepass"))


def _check_password(stored: str | None, password: str) -> str | None:
    """The hash to keep (a new one if the parameters have grown since), or None if the password is wrong."""
    from argon2 import PasswordHasher
    from argon2.exceptions import VerifyMismatchError

    hasher = PasswordHasher()
    if stored is None:
        hasher.hash(password.encode("utf-8", "surrogatepass"))
        return None
    try:
        hasher.verify(stored, password.encode("utf-8", "surrogatepass"))
    except VerifyMismatchError:
        return None
    return _hash_password(password) if hasher.check_needs_rehash(stored) else stored
