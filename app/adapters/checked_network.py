"""Connect only where a rule allows it: everything that leaves this process for an address of a client's.

A name is resolved here, what it was resolved to is checked, and the connection goes to exactly that address:
a name that means something else a moment later changes nothing. The environment's proxies are not used, for
what they would connect to is checked by nobody.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any, Final

import httpcore
import httpx

MayReach = Callable[[str, str], bool]
"""Whether a host (as it stands in the URL) may be reached at an address."""
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host, as text, for a port; an address is its own. Raises OSError, UnicodeError."""

NOT_ADMITTED: Final = "the host's address is one that may not be reached"


class AddressRefused(httpcore.ConnectError):
    """The host has no address that may be reached."""


async def from_system(host: str, port: int) -> list[str]:
    """What the system's resolver says, every address once, IPv4 and IPv6."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(where[0]) for _, _, _, _, where in found))


@cache
def usual_tls() -> ssl.SSLContext:
    """How connections are secured unless told otherwise; to read the authorities takes 20 ms and 1 MB."""
    return httpx.create_ssl_context()


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to the addresses of a host that may be reached, and to no others."""

    def __init__(
        self,
        may_reach: MayReach,
        *,
        resolve: Resolve = from_system,
        below: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        """`below` makes the connections, to addresses alone."""
        self.admits = may_reach
        self.resolve = resolve
        self._network = below or httpcore.AnyIOBackend()

    def pool(
        self,
        *,
        idle_s: float,
        most: int | None = None,
        most_idle: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> httpcore.AsyncConnectionPool:
        """Connections over HTTP/1.1 that are kept for `idle_s`; close it with `aclose()`.

        It follows no redirect, keeps no cookie and repeats nothing. At most `most` at once, `most_idle`
        unused; None is any number.
        """
        return httpcore.AsyncConnectionPool(
            ssl_context=tls or usual_tls(),
            max_connections=most,
            max_keepalive_connections=most_idle,
            keepalive_expiry=idle_s,
            network_backend=self,
        )

    async def addresses(self, host: str, port: int) -> list[str]:
        """Those of a host that may be reached, at least one. Raises AddressRefused, OSError, UnicodeError."""
        allowed = [address for address in await self.resolve(host, port) if self.admits(host, address)]
        if not allowed:
            raise AddressRefused(NOT_ADMITTED)
        return allowed

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
                allowed = await self._named(host, port)
                return await self._first(allowed, port, timeout, socket_options)
        except TimeoutError as late:
            raise httpcore.ConnectTimeout from late

    async def _named(self, host: str, port: int) -> list[str]:
        try:
            return await self.addresses(host, port)
        except (OSError, UnicodeError) as error:
            if not self.admits(host, host):
                raise AddressRefused(NOT_ADMITTED) from error
            raise httpcore.ConnectError(f"the host's name has no address: {error}") from error

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
