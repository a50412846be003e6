"""A string that does not show itself in logs, tracebacks or formatted text."""

import hmac


class Secret:
    """Wraps a secret; only ``reveal()`` gives it back.

    Not hashable, so that it does not end as a key somewhere. All comparing takes constant time.
    """

    __slots__ = ("_value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def equals(self, other: str) -> bool:
        """Compare in constant time. An empty secret equals nothing, not even the empty string."""
        return hmac.compare_digest(_encode(self._value), _encode(other)) and bool(self._value)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_encode(self._value), _encode(other._value))

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, format_spec: str) -> str:
        return format("***", format_spec)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def random_token(size_bytes: int) -> str:
    """So many random bytes as text for URLs and command lines: never with a hyphen in front, which there means an
    option (``--token -x…``)."""
    import secrets  # rarely needed

    while (token := secrets.token_urlsafe(size_bytes)).startswith("-"):
        pass
    return token
