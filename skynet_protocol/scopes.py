"""Scopes of an operator connection, and which satisfy which (OPENCLAW-V3 3.4, design section 5)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum


class Scope(StrEnum):
    """What an operator connection may do. Members are plain strings on the wire."""

    ADMIN = "operator.admin"
    READ = "operator.read"
    WRITE = "operator.write"
    APPROVALS = "operator.approvals"
    PAIRING = "operator.pairing"
    TALK_SECRETS = "operator.talk.secrets"


ALL_OPERATOR_SCOPES: tuple[str, ...] = tuple(scope.value for scope in Scope)
"""Every known scope, in the order in which OpenClaw's CLI asks for them."""

_GREATEST: dict[str, frozenset[str]] = {
    "admin": frozenset(ALL_OPERATOR_SCOPES),
    "user": frozenset((Scope.READ.value, Scope.WRITE.value, Scope.APPROVALS.value)),
    "child": frozenset((Scope.READ.value, Scope.WRITE.value)),
}


def satisfies(granted: Collection[str], required: str) -> bool:
    """Whether ``granted`` is enough for ``required``: admin for every ``operator.*``, write for read, else exact."""
    if required in granted:
        return True
    if Scope.ADMIN in granted and required.startswith("operator."):
        return True
    return required == Scope.READ and Scope.WRITE in granted


def covers(granted: Collection[str], requested: Iterable[str]) -> bool:
    """Whether every requested scope is satisfied by ``granted``."""
    return all(satisfies(granted, scope) for scope in requested)


def greatest_scopes(role: str) -> frozenset[str]:
    """The most that a person of this role (admin, user, child) may be granted; nothing for an unknown role."""
    return _GREATEST.get(role, frozenset())


def limit_scopes(requested: Iterable[str], greatest: Collection[str]) -> tuple[str, ...]:
    """What of ``requested`` lies within ``greatest``: cut, never widened, in the order asked for.

    A scope that implies others is cut to those: a user's terminal client that asks for ``operator.admin`` alone gets
    what a user may have, not nothing.
    """
    wanted = tuple(dict.fromkeys(requested))
    kept = [scope for scope in wanted if satisfies(greatest, scope)]
    implied = [scope for scope in ALL_OPERATOR_SCOPES if scope in greatest and satisfies(wanted, scope)]
    if covers(kept, implied):
        return tuple(kept)
    return tuple(dict.fromkeys((*kept, *implied)))
