"""Which addresses of the internet protocol are public: what the gateway may connect to for somebody who named it.

Written out, since ``ipaddress`` answers differently from one version of Python to the next.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

_HIDDEN_4 = tuple(
    map(
        IPv4Network,
        (
            # IANA, "IPv4 Special-Purpose Address Registry": what is not globally reachable, and 6to4 relays
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
            # answers within Azure's machines alone, with what they are configured with (the "wire server")
            "168.63.129.16/32",
        ),
    )
)
_UNICAST_6 = IPv6Network("2000::/3")
"""All that IANA gives out as global unicast addresses."""
_HIDDEN_6 = tuple(
    map(
        IPv6Network,
        # IANA, "IPv6 Special-Purpose Address Registry": protocols' own (Teredo is one of them), and documentation
        ("2001::/23", "2001:db8::/32", "3fff::/20"),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")


def is_public(address: str | Address) -> bool:
    """Whether everybody on the internet would mean the same machine by it.

    Not so: loopback, private, link-local, shared (CGNAT), multicast, reserved, unspecified and documentation
    addresses, those with a zone, the services for virtual machines that clouds have at such addresses, and what
    leads to any of them (IPv4-mapped, NAT64, 6to4). Text that is no address is none that is public.
    """
    if isinstance(address, str):
        try:
            address = ip_address(address)
        except ValueError:
            return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _HIDDEN_4)
    if address.scope_id is not None:
        return False
    embedded = _embedded(address)
    if embedded is not None:
        return is_public(embedded)
    return address in _UNICAST_6 and not any(address in network for network in _HIDDEN_6)


def is_own(address: str | Address) -> bool:
    """Whether a connection to it would end at this machine, as one to its own public address does.

    Firewalls do not see such a connection. The kernel is asked for the way there; nothing is sent.
    """
    address = ip_address(address) if isinstance(address, str) else address
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return bool(probe.getsockname()[0] == probe.getpeername()[0])
    except OSError:  # there is no way there
        return False


def may_connect(address: str) -> bool:
    """Whether the gateway may connect to it for somebody else: it is public, and another machine's."""
    return is_public(address) and not is_own(address)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets for it end up at."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    number = int(address)
    if address in _NAT64:
        return IPv4Address(number & 0xFFFF_FFFF)
    if address in _6TO4:
        return IPv4Address(number >> 80 & 0xFFFF_FFFF)
    return None
