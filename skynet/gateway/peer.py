"""Where a connection or an HTTP request comes from, and what may be believed of that."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeAlias
from urllib.parse import urlsplit

from skynet.config import is_loopback

_FORWARDING = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")

Networks: TypeAlias = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


def networks(entries: Iterable[str]) -> Networks:
    """Addresses and networks as the configuration has them (``10.0.0.5``, ``10.0.0.0/8``)."""
    return tuple(ipaddress.ip_network(entry, strict=False) for entry in entries)


def _within(address: str, proxies: Networks) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in proxies)


def _address(hop: str) -> str:
    """The address of one entry of ``X-Forwarded-For``, which may carry a port; "" if it is none."""
    try:
        host = urlsplit("//" + hop.strip()).hostname or "" if "." in hop or "[" in hop else hop.strip()
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""


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

    def behind(self, proxies: Networks) -> Self:
        """This peer, with the address of the client for whom trusted proxies speak.

        ``X-Forwarded-For`` is read from its end, where the proxies wrote; what comes before the first address that is
        not a trusted proxy's may be invented.
        """
        address = self.address
        hops = [hop for hop in self.headers.get("x-forwarded-for", "").split(",") if hop.strip()]
        while hops and _within(address, proxies) and (hop := _address(hops.pop())):
            address = hop
        return self if address == self.address else replace(self, address=address)

    @property
    def origin(self) -> str | None:
        """The ``Origin`` header; browsers always send it, other clients do not."""
        return self.headers.get("origin")

    @property
    def host(self) -> str:
        """The name part of the ``Host`` header, lower case; "" when missing, malformed or sent twice."""
        host = self.headers.get("host", "")
        try:
            return "" if "," in host else urlsplit("//" + host).hostname or ""
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
