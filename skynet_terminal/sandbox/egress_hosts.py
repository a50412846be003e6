"""Which host a request is for, however that is written, and which hosts may be reached. Without I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""The last label of what inet_aton(3) takes for an address."""
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::([0-9]{0,5}))?")
_URL = re.compile(r"http://([^/?#\\]*)((?:[/?][^#]*)?)", re.IGNORECASE)
_LONGEST_NAME = 253
_LONGEST_SHOWN = 100


class Refusal(Exception):  # noqa: N818 - it is what is answered
    """A request that is not carried out, with the HTTP status and the words that say so."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True)
class Destination:
    """``host`` is a name in lower case without a dot at its end, or an address as Python writes it."""

    host: str
    port: int
    path: str = ""
    """With the query, for a request that is not CONNECT."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_connect(target: str) -> Destination:
    """The destination of a CONNECT (RFC 9110, section 9.3.6).

    Raises:
        Refusal: it is none.
    """
    host, port = _parse_authority(target)
    if port is None:
        raise Refusal(400, f"{_shown(target)} names no port")
    return Destination(host, port)


def parse_url(target: str) -> Destination:
    """The destination of a request in absolute form (RFC 9112, section 3.2.2).

    Raises:
        Refusal: it is none, or not one of HTTP.
    """
    match = _URL.fullmatch(target)
    if match is None:
        words = "a proxy is asked for http://host/path, and for anything else with CONNECT"
        raise Refusal(400, f"{_shown(target.partition('?')[0])} is not what this proxy takes: {words}")
    host, port = _parse_authority(match[1])
    path = match[2]
    return Destination(host, 80 if port is None else port, path if path.startswith("/") else f"/{path}")


def parse_host(text: str) -> str:
    """One spelling for each host: see :class:`Destination`.

    Addresses are taken in their usual form alone. Other forms (``0x7f.1``, ``2130706433``, ``0127.0.0.1``) mean
    different addresses to different programs, and zones mean this machine's own links.

    Raises:
        Refusal: it is no host.
    """
    if text.startswith("["):
        return _parse_ipv6(text)
    host = text.lower().removesuffix(".")
    labels = host.split(".")
    if len(host) > _LONGEST_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise Refusal(400, f"{_shown(text)} is not the name of a host")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(host))
        except ValueError as exc:
            raise Refusal(403, f"{_shown(text)} is an address in a form that is not allowed") from exc
    return host


class HostRules:
    """Which hosts may be reached, and at which ports.

    Args:
        hosts: names, ``*.name`` for those below it, ``*`` for all, addresses; each may have a ``:port``.
        ports: for those without one.

    Raises:
        ValueError: one of them is no host.
    """

    def __init__(self, hosts: Sequence[str], ports: Collection[int]) -> None:
        self._rules = tuple(map(_parse_rule, hosts))
        self._ports = frozenset(ports)
        self._words = ", ".join(hosts) or "none"

    def check(self, destination: Destination) -> None:
        """
        Raises:
            Refusal: it may not be reached.
        """
        rules = [rule for rule in self._rules if rule.matches(destination.host)]
        if not rules:
            raise Refusal(403, f"{destination.host} is not among the hosts that may be reached: {self._words}")
        if not any(
            destination.port in self._ports if rule.port is None else destination.port == rule.port for rule in rules
        ):
            raise Refusal(403, f"port {destination.port} of {destination.host} may not be reached")


@dataclass(frozen=True, slots=True)
class _Rule:
    host: str
    """Empty for all."""
    is_below: bool
    port: int | None

    def matches(self, host: str) -> bool:
        if not self.host:
            return True
        return host.endswith(f".{self.host}") if self.is_below else host == self.host


def _parse_rule(text: str) -> _Rule:
    try:
        match = _AUTHORITY.fullmatch(text)
        if match is None or match[2] == "":
            raise Refusal(400, "it is no host, and no host with a port")
        port = None if match[2] is None else _parse_port(match[2])
        if match[1] == "*":
            return _Rule("", False, port)
        name = match[1].removeprefix("*.")
        host = parse_host(_ascii(name))
    except (Refusal, UnicodeError) as exc:
        raise ValueError(f"{text!r} names no host that can be allowed: {exc}") from exc
    if name != match[1] and not re.search("[a-z]", host.rpartition(".")[2]):
        raise ValueError(f"{text!r} names no host that can be allowed: nothing is below an address")
    return _Rule(host, name != match[1], port)


def _ascii(name: str) -> str:
    """As the domain name system has it (IDNA 2008)."""
    if name.isascii():
        return name
    from yarl import URL  # for the few who have such names

    return URL.build(scheme="http", host=name).raw_host or ""


def _parse_authority(text: str) -> tuple[str, int | None]:
    if "@" in text:
        raise Refusal(400, "names and passwords before a host are not passed on")
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise Refusal(400, f"{_shown(text)} is not the name of a host")
    return parse_host(match[1]), _parse_port(match[2]) if match[2] else None


def _parse_port(text: str) -> int:
    port = int(text)
    if not 0 < port < 65_536:
        raise Refusal(400, f"{text} is not a port")
    return port


def _parse_ipv6(text: str) -> str:
    try:
        address = IPv6Address(text[1:-1])
    except ValueError as exc:
        raise Refusal(400, f"{_shown(text)} is not an address") from exc
    if address.scope_id is not None:
        raise Refusal(403, f"{_shown(text)} is an address with a zone")
    return str(address.ipv4_mapped or address)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")
