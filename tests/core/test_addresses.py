"""Which hosts count as private."""

from __future__ import annotations

import pytest

from app.core.addresses import is_listed, is_loopback, is_private_host


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST.",
        "db.localhost",
        "127.0.0.1",
        "127.8.8.8",
        "127.1",
        "0177.0.0.1",
        "0x7f000001",
        "0x7f.1",
        "2130706433",
        "0",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "[::1]",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "fe80::1%eth0",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "5f00::1",
        "::ffff:10.0.0.1",
        "postgres",
        "printer.local",
        "metadata.google.internal",
        "router.home.arpa",
    ],
)
def test_private_hosts(host: str) -> None:
    assert is_private_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "api.example.com.",
        "8.8.8.8",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "localhost.example.com",
    ],
)
def test_public_hosts(host: str) -> None:
    assert not is_private_host(host)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.0.0.2", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.com", False),
        ("", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


@pytest.mark.parametrize(
    ("host", "entry", "listed"),
    [
        ("ollama", "ollama", True),
        ("Ollama.", "OLLAMA", True),
        ("sub.ollama", "ollama", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("::ffff:10.1.2.3", "10.0.0.0/8", True),
        ("fd00::5", "fd00::/8", True),
        ("10.1.2.3", "fd00::/8", False),
        ("10.1.2.3", "ten.example", False),
    ],
)
def test_lists_hold_names_and_networks(host: str, entry: str, listed: bool) -> None:
    assert is_listed(host, [entry]) == listed
