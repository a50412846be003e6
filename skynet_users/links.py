"""Codes by which people add an account of theirs on another channel: made here, sent from there."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from skynet_memory.database import Database, Statements
from skynet_memory.ids import Role, UserId
from skynet_memory.ids import now_ms as wall_clock
from skynet_memory.secrets import Secret
from skynet_users.errors import InvalidProfile, LinkRefused, UnknownUser
from skynet_users.identities import check_identity, link_identity, unlink_identity

EXPIRY_MS: Final = 10 * 60_000
MAX_TRIES: Final = 5
"""Refused codes from one sender within ``TRIES_WINDOW_MS``; then the right one is refused too."""
TRIES_WINDOW_MS: Final = 3_600_000
MAX_SENDERS: Final = 10_000

ALPHABET: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Without I, L, O, 0 and 1, which people mistake for each other."""
CODE_CHARS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCode:
    code: Secret
    """``ABCD-EFGH``; the only time it can be read."""
    expires_at_ms: int


class LinkCodes:
    """
    Args:
        max_senders: senders whose tries are remembered; beyond that those who tried longest ago are forgotten.
    """

    def __init__(self, db: Database, clock: Callable[[], int] = wall_clock, *, max_senders: int = MAX_SENDERS) -> None:
        self._db = db
        self._clock = clock
        self._tries = _Tries(max_senders)

    async def create(
        self, owner: UserId, from_channel: str, from_external_id: str = "", now_ms: int | None = None
    ) -> LinkCode:
        """A new code, in place of this person's earlier one.

        Args:
            from_channel, from_external_id: where it was asked for, from which it therefore proves nothing.

        Raises:
            UnknownUser: there is no such person, or it is disabled.
        """
        at_ms = self._clock() if now_ms is None else now_ms
        code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARS))
        values = (_code_hash(code), from_channel, from_external_id, at_ms + EXPIRY_MS, owner)

        def work(tx: Statements) -> int:
            tx.execute("DELETE FROM link_codes WHERE expires_at_ms <= ? OR owner = ?", (at_ms, owner))
            return tx.execute(
                "INSERT INTO link_codes (owner, hash, from_channel, from_external_id, expires_at_ms)"
                " SELECT id, ?, ?, ?, ? FROM users WHERE id = ? AND kind = 'person' AND NOT disabled",
                values,
            )

        if not await self._db.write(work):
            raise UnknownUser(owner)
        return LinkCode(code=Secret(f"{code[:4]}-{code[4:]}"), expires_at_ms=at_ms + EXPIRY_MS)

    async def claim(
        self, code: str, channel: str, external_id: str, now_ms: int | None = None, *, display_name: str = ""
    ) -> UserId:
        """Link the identity that sent this code to the person who made it; returns whom. A code links once.

        It may be an unknown identity, or one that only made a person of itself by writing, whose account stays behind
        without it. Anybody else's is moved by an admin alone.

        Raises:
            LinkRefused: with the words for the sender. The code of a refused one goes on to be good.
        """
        at_ms = self._clock() if now_ms is None else now_ms
        sender = (channel, external_id)
        if not self._tries.begin(sender, at_ms):
            raise LinkRefused("too_many_tries")
        try:
            check_identity(channel, external_id)
        except InvalidProfile as exc:
            raise LinkRefused("unknown_code") from exc
        digest = _code_hash(normalised(code))

        def work(tx: Statements) -> UserId:
            row = tx.fetchone(
                "DELETE FROM link_codes WHERE hash = ? AND expires_at_ms > ?"
                " AND owner IN (SELECT id FROM users WHERE NOT disabled) RETURNING *",
                (digest, at_ms),
            )
            if row is None:
                raise LinkRefused("unknown_code")
            owner: UserId = row["owner"]
            if (row["from_channel"], row["from_external_id"]) == sender:
                raise LinkRefused("same_identity")
            holder = tx.fetchone(
                "SELECT users.* FROM identities JOIN users ON users.id = owner WHERE channel = ? AND external_id = ?",
                sender,
            )
            if holder is not None and holder["id"] != owner:
                if holder["role"] == Role.ADMIN or holder["disabled"] or not holder["auto_created"]:
                    raise LinkRefused("taken")
                unlink_identity(tx, channel, external_id)
            link_identity(tx, owner, channel, external_id, display_name, True, owner, at_ms)
            return owner

        owner = await self._db.write(work)
        self._tries.undo(sender)
        return owner


def normalised(code: str) -> str:
    """As people type it: in any case, with or without the hyphen and spaces."""
    return "".join(char for char in code.upper() if char not in "- \t\r\n")


def is_code(text: str) -> bool:
    """Whether a message may be a code, and nothing else."""
    code = normalised(text[: 4 * CODE_CHARS])
    return len(text) <= 4 * CODE_CHARS and len(code) == CODE_CHARS and all(char in ALPHABET for char in code)


def _code_hash(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


class _Tries:
    """How often each sender has tried within the window, counted before the answer: nobody tries in parallel."""

    def __init__(self, max_senders: int) -> None:
        self._max_senders = max_senders
        self._senders: OrderedDict[tuple[str, str], list[int]] = OrderedDict()

    def begin(self, sender: tuple[str, str], now_ms: int) -> bool:
        """Count a try; False if there were too many."""
        tries = [at_ms for at_ms in self._senders.pop(sender, ()) if at_ms > now_ms - TRIES_WINDOW_MS]
        allowed = len(tries) < MAX_TRIES
        self._senders[sender] = [*tries, now_ms] if allowed else tries
        if len(self._senders) > self._max_senders:
            self._senders.popitem(last=False)
        return allowed

    def undo(self, sender: tuple[str, str]) -> None:
        """The last try was right."""
        tries = self._senders.get(sender)
        if tries:
            tries.pop()
