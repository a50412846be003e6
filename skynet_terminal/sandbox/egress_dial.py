"""Connecting to a host that somebody else named: its addresses are found once, checked, and used as they are.

So nobody gets the gateway to connect to its own machine or network, not with a name that leads there and not with one
that leads elsewhere the second time (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import TypeAlias

from skynet_terminal.sandbox.egress_hosts import Destination, Refusal

log = logging.getLogger(__name__)

MOST_TRIED = 4
"""So many addresses of a host are tried, in the order they were given."""
BUFFER_BYTES = 65_536

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, for a port; raises OSError if there are none."""


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """As the machine is set up to (getaddrinfo(3))."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Dialer:
    """
    Args:
        may_reach: which addresses may be connected to.
        connect_s: for all of it.
    """

    def __init__(self, resolve: Resolve, may_reach: Callable[[str], bool], connect_s: float) -> None:
        self._resolve = resolve
        self._may_reach = may_reach
        self._connect_s = connect_s

    async def dial(self, to: Destination) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to it.

        Raises:
            Refusal: one of its addresses is not one to connect to, or none of them answers.
        """
        try:
            async with asyncio.timeout(self._connect_s):
                connected = await self._connected(await self._addresses(to), to)
                return await asyncio.open_connection(sock=connected, limit=BUFFER_BYTES)
        except TimeoutError as exc:
            raise Refusal(504, f"{to} does not answer within {self._connect_s:g} seconds") from exc

    async def _addresses(self, to: Destination) -> Sequence[str]:
        """All of its addresses, if all may be reached."""
        try:
            addresses = [str(ip_address(to.host))]
        except ValueError:
            try:
                addresses = list(await self._resolve(to.host, to.port))
            except (OSError, UnicodeError) as exc:
                raise Refusal(502, f"{to.host} is not known") from exc
        if not addresses:
            raise Refusal(502, f"{to.host} has no address")
        for address in addresses:
            if not self._may_reach(address):
                log.info("egress: %s leads to %s, which nobody is connected to", to.host, address)
                raise Refusal(403, f"{to.host} leads to an address that is not public")
        return addresses

    async def _connected(self, addresses: Sequence[str], to: Destination) -> socket.socket:
        loop = asyncio.get_running_loop()
        tried = addresses[:MOST_TRIED]
        error: OSError | None = None
        for address in tried:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                connection.setblocking(False)
                async with asyncio.timeout(self._connect_s / len(tried)):
                    await loop.sock_connect(connection, (address, to.port))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
            except OSError as exc:  # a TimeoutError is one
                error = exc
                connection.close()
            except BaseException:
                connection.close()
                raise
        if isinstance(error, TimeoutError) and error.errno is None:
            raise error
        reason = os.strerror(error.errno) if error is not None and error.errno else "it does not answer"
        raise Refusal(502, f"{to} cannot be reached: {reason}") from error
