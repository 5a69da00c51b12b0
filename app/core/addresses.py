"""Which hosts are this machine or its private neighbourhood."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address

_PRIVATE_NAMES = ("localhost", "local", "internal", "localdomain", "home.arpa")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?", re.IGNORECASE)
"""Spellings of an IPv4 address that resolvers take beside the usual one, such as 127.1 and 0x7f000001."""


_WRAPPERS = tuple(map(ip_network, ("2002::/16", "2001::/32", "64:ff9b::/96", "64:ff9b:1::/48")))
"""Addresses that lead to the IPv4 address inside them, public or not, and that no model is served on."""

_UNICAST = ip_network("2000::/3")
"""Where IPv6 addresses are global. Others wrap an IPv4 address too (::127.0.0.1), or lead nowhere yet."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what is bound to `host`."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_private_host(host: str) -> bool:
    """Whether `host`, as it is written, is not a public one. Names are not resolved.

    An address is public only if it is globally reachable; odd spellings of one count as private.
    """
    address = _address(host)
    if address is not None:
        return not address.is_global or address.is_multicast or _is_wrapped(address)
    name = host.lower().rstrip(".")
    if _NUMERIC.fullmatch(name) or "." not in name:
        return True
    return any(name == suffix or name.endswith("." + suffix) for suffix in _PRIVATE_NAMES)


def is_listed(host: str, allowed: Iterable[str]) -> bool:
    """Whether a name of the list is `host`, or a network of the list holds it."""
    address = _address(host)
    for entry in allowed:
        if entry.lower() == host.lower().rstrip("."):
            return True
        if address is not None and _holds(entry, address):
            return True
    return False


def _is_wrapped(address: Address) -> bool:
    if address.version == 4:
        return False
    return address not in _UNICAST or any(address in network for network in _WRAPPERS)


def _holds(entry: str, address: Address) -> bool:
    try:
        return address in ip_network(entry, strict=False)
    except ValueError:
        return False


def _address(host: str) -> Address | None:
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
