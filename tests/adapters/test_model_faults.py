"""Failures of model servers in our words, without their secrets."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import aiohttp
import httpx
import pytest

from app.adapters.http_errors import AddressRefused, Disconnected, DnsError, TlsError
from app.adapters.model_exchange import secrets_among
from app.adapters.model_faults import (
    connection_fault,
    error_object_fault,
    malformed,
    retry_after_ms,
    status_fault,
    without_secrets,
)
from app.core.faults import Fault, FaultKind

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def status(body: Any, **headers: str) -> Fault:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return status_fault(503, httpx.Headers({k.replace("_", "-"): v for k, v in headers.items()}), raw, NOW)


@pytest.mark.parametrize(
    ("body", "message", "type", "code"),
    [
        ({"error": {"message": "busy", "type": "t", "code": "c"}}, "HTTP 503: busy", "t", "c"),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "m"}},
            "HTTP 503: m",
            "overloaded_error",
            None,
        ),
        (
            [{"error": {"message": "m", "code": 503, "status": "UNAVAILABLE"}}],
            "HTTP 503: m",
            "http_status",
            503,
        ),
        ({"error": "busy"}, "HTTP 503: busy", "http_status", None),
        ({"message": "busy", "code": 5}, "HTTP 503: busy", "http_status", 5),
        ({"detail": "busy"}, "HTTP 503: busy", "http_status", None),
        ({"detail": [{"loc": ["body"]}]}, 'HTTP 503: [{"loc":["body"]}]', "http_status", None),
        (b"no healthy upstream", "HTTP 503: no healthy upstream", "http_status", None),
        (b"", "the model server answered with HTTP status 503", "http_status", None),
        (b"null", "the model server answered with HTTP status 503", "http_status", None),
        (b"\xff\x00", "HTTP 503: \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}", "http_status", None),
        (b"x" * 9_000, "HTTP 503: " + "x" * 1_999 + "…", "http_status", None),
    ],
)
def test_an_error_status_keeps_the_servers_words(body: Any, message: str, type: str, code: Any) -> None:
    fault = status(body)
    assert (fault.kind, fault.status) == (FaultKind.STATUS, 503)
    assert (fault.message, fault.type, fault.provider_code) == (message, type, code)


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (302, "redirects are not followed: check base_url"),
        (401, "check the model's API key"),
        (404, "check base_url and the model's name"),
    ],
)
def test_a_status_that_the_server_does_not_explain_says_what_to_check(code: int, hint: str) -> None:
    for body, words in (
        (b"", f"the model server answered with HTTP status {code} ({hint})"),
        (b"<html>no", f"HTTP {code}: <html>no ({hint})"),
        (b'{"error": {"message": "no"}}', f"HTTP {code}: no"),
    ):
        assert status_fault(code, {}, body, NOW).message == words


def test_the_servers_request_id_is_kept() -> None:
    assert status(b"", x_request_id="req-7").detail == {"request_id": "req-7"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7_000),
        ({"retry-after": " 0.5 "}, 500),
        ({"retry-after": "0"}, 0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 250),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:35 GMT"}, 30_000),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:00 GMT"}, 0),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:35 GMT", "date": "Fri, 02 Jan 2026 03:04:25 GMT"}, 10_000),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:35 GMT", "date": "today"}, 30_000),
        ({"retry-after": "Fri, 99 Jan 2026 03:04:35 GMT"}, None),
    ],
)
def test_retry_after_in_all_its_forms(headers: dict[str, str], expected: int | None) -> None:
    assert retry_after_ms(httpx.Headers(headers), NOW) == expected


REQUEST = httpx.Request("POST", "http://model.test/?key=hidden")


@pytest.mark.parametrize(
    ("error", "kind", "word"),
    [
        (TlsError("x"), "tls", "tls_error"),
        (AddressRefused("x"), "internal", "address_refused"),
        (DnsError("x"), "network", "dns_error"),
        (httpx.ConnectError("x"), "network", "connect_error"),
        (httpx.ConnectTimeout(str(REQUEST.url)), "network", "connect_timeout"),
        (httpx.ReadTimeout(str(REQUEST.url)), "network", "read_timeout"),
        (httpx.ReadError("x"), "network", "connection_reset"),
        (Disconnected("x"), "network", "connection_closed"),
        (httpx.RemoteProtocolError("x"), "malformed", "bad_http"),
        (httpx.UnsupportedProtocol("x"), "internal", "bad_request"),
    ],
)
def test_what_happened_to_the_connection(error: httpx.TransportError, kind: str, word: str) -> None:
    fault = connection_fault(error)
    assert (fault.kind, fault.type) == (kind, word)
    assert "hidden" not in fault.message


def test_a_refused_connection_is_told_apart() -> None:
    error = httpx.ConnectError("x")
    key = aiohttp.client_reqrep.ConnectionKey("h", 1, False, True, None, None, None)
    error.__cause__ = aiohttp.ClientConnectorError(key, ConnectionRefusedError(111, "refused"))
    assert connection_fault(error).type == "connection_refused"


def test_secrets_are_masked_wherever_a_server_quotes_them() -> None:
    error = {
        "message": "bad key sk-secret-1",
        "type": "sk-secret-1",
        "code": "sk-secret-1",
        "param": ["sk-secret-1"],
        "sk-secret-1": {"deep": "sk-secret-1!"},
    }
    fault = without_secrets(error_object_fault(error), ["", "sk-secret-1"])
    assert "sk-secret-1" not in repr(fault)
    assert fault.message == "bad key [redacted]"
    assert fault.detail == {"param": ["[redacted]"], "[redacted]": {"deep": "[redacted]!"}}


@pytest.mark.parametrize(
    "error",
    [
        {"message": "a\0b\ud800", "x": "\0", "y": {"z": "\0\ud800"}, "n": float("nan"), "big": 1 << 80},
        {"message": {"nested": ["\ud800"]}},
        {1: 2, "code": True, "type": 5, "status_code": "abc"},
        "\ud800",
        5,
        None,
        [],
    ],
)
def test_any_error_object_becomes_a_fault_that_can_be_stored(error: Any) -> None:
    fault = error_object_fault(error)
    text = json.dumps([fault.message, fault.type, fault.provider_code, fault.detail], ensure_ascii=False)
    assert text.encode()
    assert "\0" not in fault.message
    assert "\\u0000" not in text


def test_what_was_seen_is_quoted_in_short() -> None:
    assert len(malformed("no", b"\xf0" * 10_000).message) < 250


def test_a_secret_is_also_one_without_its_scheme_and_short_words_are_none() -> None:
    assert secrets_among(["Bearer abcdefgh", "a b", "key", ""]) == ["Bearer abcdefgh", "abcdefgh"]
