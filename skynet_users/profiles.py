"""What a profile may hold. The one place where its fields are checked, and written to and read from a row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from skynet_memory.database import Value
from skynet_memory.ids import Role
from skynet_users.errors import InvalidProfile
from skynet_users.permissions import Permission

NAME_CHARS: Final = 64
WORD_CHARS: Final = 100
"""Of a language and a tone."""
INTERESTS: Final = 20
INTEREST_CHARS: Final = 60
MAX_BUDGET: Final = 10**15

CONTENT_FILTERS: Final = ("off", "moderate", "strict")

_JOINERS: Final = str.maketrans("", "", "\u200c\u200d")
"""Parts of words and of emoji, though they have no shape of their own."""


def checked_profile(fields: Mapping[str, object]) -> dict[str, Value]:
    """The columns of these fields.

    Raises:
        InvalidProfile: naming the first field that is unknown, or that holds what it must not.
    """
    columns: dict[str, Value] = {}
    for field, value in fields.items():
        check = _CHECKS.get(field)
        if check is None:
            raise InvalidProfile(field, "there is no such field")
        columns[field] = check(field, value)
    return columns


def clean_name(text: str, fallback: str) -> str:
    """A display name out of whatever a channel says: what cannot be shown is left out."""
    shown = re.sub(r"\s+", " ", "".join(char for char in text if _is_printable(char) or char.isspace()))
    return shown.strip()[:NAME_CHARS].strip() or fallback


def _is_printable(text: str) -> bool:
    return text.translate(_JOINERS).isprintable()


def _text(field: str, value: object, *, shortest: int, longest: int) -> str:
    if not isinstance(value, str) or not _is_printable(value) or not shortest <= len(value.strip()) <= longest:
        raise InvalidProfile(field, f"must be {shortest} to {longest} printable characters")
    return value.strip()


def _name(field: str, value: object) -> str:
    text = _text(field, value, shortest=1, longest=NAME_CHARS)
    if not text.translate(_JOINERS).strip():
        raise InvalidProfile(field, f"must be 1 to {NAME_CHARS} printable characters")
    return text


def _words(field: str, value: object) -> str:
    return _text(field, value, shortest=0, longest=WORD_CHARS)


def _hours(field: str, value: object) -> str:
    from skynet_users.hours import Hours  # which needs zoneinfo, as below

    if not isinstance(value, str):
        raise InvalidProfile(field, "must be a text")
    try:
        Hours.parse(value)
    except ValueError as exc:
        raise InvalidProfile(field, str(exc)) from exc
    return value.strip()


def _role(field: str, value: object) -> str:
    if not isinstance(value, str) or value not in frozenset(Role):
        raise InvalidProfile(field, f"must be one of {', '.join(Role)}")
    return str(value)


def _interests(field: str, value: object) -> str:
    if not isinstance(value, list | tuple) or len(value) > INTERESTS:
        raise InvalidProfile(field, f"must be at most {INTERESTS} texts")
    return json.dumps([_text(field, item, shortest=1, longest=INTEREST_CHARS) for item in value])


def _age(field: str, value: object) -> int | None:
    if value is not None and (type(value) is not int or not 0 <= value <= 150):
        raise InvalidProfile(field, "must be 0 to 150, or nothing")
    return value


def _time_zone(field: str, value: object) -> str:
    from zoneinfo import ZoneInfo  # costs start-up time that most starts do not need

    if value == "":
        return ""
    try:
        if not isinstance(value, str):
            raise ValueError("not a text")
        ZoneInfo(value)
    except (KeyError, ValueError, OSError) as exc:  # OSError: the name of a directory, or one that is too long
        raise InvalidProfile(field, "must be an IANA name such as Europe/Berlin, or empty") from exc
    return value


def _content_filter(field: str, value: object) -> str:
    if not isinstance(value, str) or value not in CONTENT_FILTERS:
        raise InvalidProfile(field, f"must be one of {', '.join(CONTENT_FILTERS)}")
    return value


def _flag(field: str, value: object) -> int:
    if not isinstance(value, bool):
        raise InvalidProfile(field, "must be true or false")
    return int(value)


def _flags(field: str, value: object) -> str:
    if not isinstance(value, Mapping) or not all(isinstance(given, bool) for given in value.values()):
        raise InvalidProfile(field, "must be permissions with true or false")
    for word in value:
        if word not in frozenset(Permission):
            raise InvalidProfile(field, f"there is no permission {word!r}; there are {', '.join(Permission)}")
    return json.dumps({str(word): given for word, given in sorted(value.items())})


def _budget(field: str, value: object) -> int | None:
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_BUDGET):
        raise InvalidProfile(field, f"must be 0 to {MAX_BUDGET}, or nothing for the role's default")
    return value


_CHECKS: Final[Mapping[str, Callable[[str, object], Value]]] = {
    "display_name": _name,
    "role": _role,
    "language": _words,
    "tone": _words,
    "interests": _interests,
    "age": _age,
    "time_zone": _time_zone,
    "content_filter": _content_filter,
    "requires_approval": _flag,
    "flags": _flags,
    "quiet_hours": _hours,
    "allowed_hours": _hours,
    "needs_welcome": _flag,
    "disabled": _flag,
    "daily_tokens": _budget,
    "monthly_tokens": _budget,
    "daily_microusd": _budget,
    "monthly_microusd": _budget,
}
