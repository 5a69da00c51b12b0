"""Connect only where a rule allows it.

A name is resolved here, what it was resolved to is checked, and the connection goes to exactly that address:
a name that means something else a moment later changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any

import httpcore

MayReach = Callable[[str, str], bool]
"""Whether a host (as it stands in the URL) may be reached at an address."""


class AddressRefused(httpcore.ConnectError):
    """The host has no address that may be reached."""


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to the addresses of a host that may be reached, and to no others."""

    def __init__(self, may_reach: MayReach) -> None:
        self._may_reach = may_reach
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to the first address that takes one. Raises httpcore.ConnectError, ConnectTimeout."""
        try:
            async with asyncio.timeout(timeout):
                addresses = await _resolved(host, port)
                allowed = [address for address in addresses if self._may_reach(host, address)]
                if not allowed:
                    raise AddressRefused("the host's address is one that may not be reached")
                return await self._first(allowed, port, timeout, socket_options)
        except TimeoutError as late:
            raise httpcore.ConnectTimeout from late

    async def _first(
        self, addresses: list[str], port: int, timeout: float | None, options: Iterable[Any] | None
    ) -> httpcore.AsyncNetworkStream:
        each_s = None if timeout is None else timeout / len(addresses)
        for address in addresses[:-1]:
            try:
                return await self._network.connect_tcp(address, port, each_s, socket_options=options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._network.connect_tcp(addresses[-1], port, timeout, socket_options=options)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Never: there is no URL that means one."""
        raise httpcore.UnsupportedProtocol("no Unix sockets")

    async def sleep(self, seconds: float) -> None:
        """See httpcore."""
        await self._network.sleep(seconds)


async def _resolved(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"the host's name has no address: {error}") from error
    return list(dict.fromkeys(str(where[0]) for _, _, _, _, where in found))
