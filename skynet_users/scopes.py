"""Which scopes satisfy which (OPENCLAW-V3 3.4), as far as the stores need it."""

from collections.abc import Collection


def covers(granted: Collection[str], requested: Collection[str], *, role: str) -> bool:
    """Whether every requested scope is among the granted ones.

    For operators ``operator.admin`` stands for every ``operator.*`` and ``operator.write`` for ``operator.read``; other
    roles compare exactly.
    """
    return all(_satisfies(granted, scope, role) for scope in requested)


def _satisfies(granted: Collection[str], scope: str, role: str) -> bool:
    if scope in granted:
        return True
    if role != "operator" or not scope.startswith("operator."):
        return False
    return "operator.admin" in granted or (scope == "operator.read" and "operator.write" in granted)
