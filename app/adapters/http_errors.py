"""Errors of calls to model servers that say what really happened.

aiohttp's classes overlap, and some hide what matters: whether a request was sent. These do not:

| raised | what is known |
|---|---|
| `httpx.ConnectTimeout`, `httpx.ConnectError`, `DnsError`, `TlsError`, `AddressRefused` | nothing was sent |
| `httpx.ReadError` | the connection was reset after the request went out |
| `Disconnected` | the peer closed the connection before its answer was complete |
| `httpx.RemoteProtocolError` | what came is not HTTP |
| `httpx.LocalProtocolError` | the request itself cannot be sent |
"""

from __future__ import annotations

import ssl
from typing import Final

import aiohttp
import httpx


class TlsError(httpx.ConnectError):
    """The handshake failed or the certificate was refused; trying again would not help."""


class DnsError(httpx.ConnectError):
    """The host's name has no address."""


class AddressRefused(httpx.ConnectError):
    """The host's address is one that we may not talk to."""


class Disconnected(httpx.RemoteProtocolError):
    """The peer closed the connection in good order, but before its answer was complete."""


class NotAllowed(OSError):
    """Raised inside aiohttp in the place of an address; comes out as `AddressRefused`."""


CLIENT_ERRORS: Final = (aiohttp.ClientError, OSError, TimeoutError, UnicodeError)
"""What aiohttp lets out; the last one for a name that no name server can be asked for."""

_TRUE_CLASSES: Final[tuple[tuple[type[BaseException], type[httpx.TransportError]], ...]] = (
    (aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout),
    (TimeoutError, httpx.ReadTimeout),
    (aiohttp.ClientConnectorDNSError, DnsError),
    (UnicodeError, DnsError),
    (aiohttp.ClientSSLError, TlsError),
    (ssl.SSLError, TlsError),
    (aiohttp.ServerFingerprintMismatch, TlsError),
    (aiohttp.ClientConnectorError, httpx.ConnectError),
    (aiohttp.ServerDisconnectedError, Disconnected),
    (aiohttp.ClientConnectionError, httpx.ReadError),
    (OSError, httpx.ReadError),
    (aiohttp.InvalidURL, httpx.LocalProtocolError),
    (aiohttp.NonHttpUrlClientError, httpx.UnsupportedProtocol),
    (aiohttp.ClientError, httpx.RemoteProtocolError),
)
"""The first that fits counts: aiohttp's classes overlap."""


def true_error(error: BaseException, request: httpx.Request) -> httpx.TransportError:
    """What one of `CLIENT_ERRORS` means."""
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, NotAllowed):
        return AddressRefused(str(error.os_error), request=request)
    kind = next(true for seen, true in _TRUE_CLASSES if isinstance(error, seen))
    words = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return kind(words or type(error).__name__, request=request)
