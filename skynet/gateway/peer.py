"""Where a connection or an HTTP request comes from, and what may be believed of that."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

_FORWARDING = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


def is_loopback(host: str) -> bool:
    """Whether ``host`` (an address or a name, without a port) is this machine."""
    host = host.strip("[]").lower()
    if host in {"localhost", ""}:
        return host == "localhost"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def joined_headers(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by lower-case name. A name that comes twice has its values joined, so that a second ``Origin`` or
    ``Host`` can only make a check fail, never replace the first.
    """
    headers: dict[str, str] = {}
    for name, value in items:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """The network's view of a peer. Header names are looked up in lower case."""

    address: str
    port: int
    headers: Mapping[str, str]

    @property
    def origin(self) -> str | None:
        """The ``Origin`` header; browsers always send it, other clients do not."""
        return self.headers.get("origin")

    @property
    def host(self) -> str:
        """The name part of the ``Host`` header, lower case; "" when missing or malformed."""
        try:
            return urlsplit("//" + self.headers.get("host", "")).hostname or ""
        except ValueError:
            return ""

    @property
    def forwarded(self) -> bool:
        """Whether a proxy added its headers."""
        return any(self.headers.get(name) is not None for name in _FORWARDING)

    @property
    def local(self) -> bool:
        """Loopback address, a loopback ``Host`` and nothing forwarded (OPENCLAW-V3 5.1): what silent pairing needs.

        The ``Host`` is looked at so that a page on another site that rebinds its name to 127.0.0.1 is not local.
        """
        if not is_loopback(self.address) or self.forwarded:
            return False
        return is_loopback(self.host) or self.host.endswith(".ts.net")


def origin_allowed(peer: PeerInfo, allowed: tuple[str, ...]) -> bool:
    """The origin rule (OPENCLAW-V3 2.7): listed, or both the page and the gateway are on this machine.

    Args:
        allowed: origins as ``scheme://host[:port]``.
    """
    origin = (peer.origin or "").strip().lower()
    if not origin or origin == "null":
        return False
    if origin in {entry.strip().lower().rstrip("/") for entry in allowed}:
        return True
    try:
        page = urlsplit(origin)
        return page.scheme in {"http", "https"} and is_loopback(page.hostname or "") and is_loopback(peer.host)
    except ValueError:
        return False
