"""Which hosts may be reached on behalf of a project: the one rule for everything that leaves this process."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address

_PRIVATE_NAMES = ("localhost", "local", "internal", "localdomain", "home.arpa")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?", re.IGNORECASE)
"""Spellings of an IPv4 address that resolvers take beside the usual one, such as 127.1 and 0x7f000001."""


_WRAPPERS = tuple(map(ip_network, ("2002::/16", "2001::/32", "64:ff9b::/96", "64:ff9b:1::/48")))
"""Addresses that lead to the IPv4 address inside them, public or not, and that no model is served on."""

_UNICAST = ip_network("2000::/3")
"""Where IPv6 addresses are global. Others wrap an IPv4 address too (::127.0.0.1), or lead nowhere yet."""

_METADATA = tuple(
    map(
        ip_network,
        (
            *("169.254.0.0/16", "fe80::/10"),  # link-local: of most clouds
            *("fd00:ec2::254/128", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
        ),
    )
)
"""Where clouds tell machines their secrets. No server of anybody's is there."""

_NOT_GLOBAL = (*_METADATA, *map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
"""What else Python takes for globally reachable, in some versions at least: protocols, relays to 2002::/16,
and what is for documentation."""


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
        return not address.is_global or address.is_multicast or _is_special(address)
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


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Where requests may go: to models, tools, gates, hooks, webhook endpoints and images alike."""

    private: bool = False
    """This machine and its neighbourhood too, as in development mode; not where clouds tell secrets."""
    allowed: Collection[str] = ()
    """Private names and networks that are all right nevertheless."""

    def fault(self, url: str) -> str | None:
        """What is wrong with a base URL. A name is judged as it is written, not resolved."""
        if fault := self.fault_of_any(url, instead="; use api_key_env"):
            return fault
        parts = urlsplit(url)
        return "a base URL has no query and no fragment" if parts.query or parts.fragment else None

    def fault_of_any(self, url: str, *, instead: str = "") -> str | None:
        """The same of any URL; `instead` says where credentials belong."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            return "this is no URL"
        if parts.scheme not in {"http", "https"} or not host:
            return "only http and https URLs with a host are taken"
        if parts.username is not None or parts.password is not None:
            return f"credentials do not belong into the URL{instead}"
        if not self._admits_host(host):
            return "private addresses are only reached if the operator lists them in BRANCHLINE_ALLOWED_HOSTS"
        return None

    def admits(self, host: str, address: str) -> bool:
        """Whether a host may be reached at an address that its name was resolved to."""
        return self._admits_host(address) or is_listed(host, self.allowed)

    def _admits_host(self, host: str) -> bool:
        if is_listed(host, self.allowed) or not is_private_host(host):
            return True
        return self.private and not _may_tell_secrets(host)


def _may_tell_secrets(host: str) -> bool:
    address = _address(host)
    if address is None:
        return False
    return any(address in network for network in (*_METADATA, *_WRAPPERS))


def _is_special(address: Address) -> bool:
    if any(address in network for network in _NOT_GLOBAL):
        return True
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
