"""Which hosts count as private."""

from __future__ import annotations

import pytest

from app.core.addresses import AddressRule, is_listed, is_loopback, is_private_host


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
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "192.88.99.1",
        "198.18.0.1",
        "240.0.0.1",
        "fec0::1",
        "3fff::1",
        "2001:db8::1",
        "64:ff9b:1::7f00:1",
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


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("https://tools.example/a?b#c", None),
        ("http://8.8.8.8:8080", None),
        ("https://tools.example:99999/", "no URL"),
        ("http://[::1/", "no URL"),
        ("ftp://tools.example/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("gopher://127.0.0.1:6379/_PING", "only http and https"),
        ("//tools.example/", "only http and https"),
        ("http:///path", "only http and https"),
        ("https://user:pass@tools.example/", "credentials"),
        ("http://169.254.169.254/latest/meta-data/", "BRANCHLINE_ALLOWED_HOSTS"),
        ("http://LOCALHOST/", "BRANCHLINE_ALLOWED_HOSTS"),
        ("http://inner.local/", "BRANCHLINE_ALLOWED_HOSTS"),
        ("http://stock/", None),
        ("http://10.1.2.3/", None),
    ],
)
def test_an_address_is_judged_as_it_is_written(url: str, fault: str | None) -> None:
    found = AddressRule(allowed=("stock", "10.1.0.0/16")).fault_of_any(url)
    assert found is None if fault is None else fault in (found or "")


@pytest.mark.parametrize(
    ("host", "address", "admitted"),
    [
        ("tools.example", "8.8.8.8", True),
        ("tools.example", "127.0.0.1", False),
        ("tools.example", "::ffff:127.0.0.1", False),
        ("tools.example", "fe80::1%eth0", False),
        ("tools.example", "10.1.2.3", True),
        ("tools.example", "::ffff:10.1.2.3", True),
        ("stock", "127.0.0.1", True),
        ("Stock.", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", False),
    ],
)
def test_what_a_name_was_resolved_to_counts_unless_the_name_is_listed(
    host: str, address: str, admitted: bool
) -> None:
    rule = AddressRule(allowed=("stock", "10.1.0.0/16"))
    assert rule.admits(host, address) is admitted


@pytest.mark.parametrize(
    ("address", "admitted"),
    [
        *((here, True) for here in ("127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "fd00::1", "0.0.0.0")),
        *((there, False) for there in ("169.254.169.254", "::ffff:169.254.169.254", "fe80::1%eth0")),
        *((there, False) for there in ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")),
        *((there, False) for there in ("64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::")),
    ],
)
def test_in_development_the_neighbourhood_is_reached_and_no_secrets_of_clouds(
    address: str, admitted: bool
) -> None:
    rule = AddressRule(private=True)
    assert rule.admits("any.example", address) is admitted
    assert rule.admits(address, address) is admitted
    assert AddressRule(private=True, allowed=("0.0.0.0/0", "::/0")).admits(address, address)
