"""What an answer of a tool over HTTP means."""

from __future__ import annotations

from typing import Any

import pytest

from app.adapters.tools.http_answers import EXCERPT, MAX_WORDS, Answer, output_in
from app.ports.tool import ToolFailure

JSON = "application/json"


def failure_of(status: int, body: bytes, hidden: tuple[str, ...] = ()) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        output_in(Answer(status, JSON, body), hidden=hidden)
    return caught.value


@pytest.mark.parametrize(
    ("status", "content_type", "body", "output"),
    [
        (200, JSON, b'{"a": 1}', {"a": 1}),
        (201, JSON, b"7", 7),
        (200, JSON, b"null", None),
        (200, JSON, b"false", False),
        (200, JSON, b'""', ""),
        (200, JSON, b"", None),
        (202, "", b"", None),
        (204, "", b"", None),
        (200, "text/plain", b'{"a":1}', {"a": 1}),
        (200, "", b"[1]", [1]),
        (200, JSON, b"\xef\xbb\xbf[1]", [1]),
        (200, JSON + "; charset=iso-8859-1", '{"a":"é"}'.encode("latin-1"), {"a": "é"}),
        (200, JSON + '; charset="windows-1252"', '"€"'.encode("cp1252"), "€"),
        (200, JSON + "; charset=utf-16", '"é"'.encode("utf-16"), "é"),
        (200, JSON + "; charset=utf-8", '"é"'.encode(), "é"),
        (200, JSON + "; charset=rot13", '"é"'.encode(), "é"),
        (200, JSON, b'"\xff"', "\N{REPLACEMENT CHARACTER}"),
        (200, JSON, rb'"a\u0000\ud800"', "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
        (200, JSON, b"18446744073709551617", 18446744073709551617),
        (200, JSON, b'{"a":1,"a":2}', {"a": 2}),
    ],
)
def test_an_output(status: int, content_type: str, body: bytes, output: Any) -> None:
    found = output_in(Answer(status, content_type, body))
    assert (found, type(found)) == (output, type(output))


@pytest.mark.parametrize(
    "body",
    [b"<html>Login</html>", b'{"a":1}{"b":2}', b'{"a":', b"NaN", b" ", b"[" * 100_000, b"[" * 65 + b"]" * 65],
)
def test_what_is_no_json_is_a_failure_that_shows_its_beginning(body: bytes) -> None:
    failure = failure_of(200, body)
    assert (failure.type, failure.retryable) == ("INVALID_RESPONSE", False)
    assert failure.message.startswith("HTTP 200, but the body is no JSON (")
    assert body.decode()[:10].strip() in failure.message
    assert len(failure.message) < EXCERPT + 200


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        *((status, False) for status in (400, 404, 408, 500, 501)),
        *((status, True) for status in (429, 502, 503, 504)),
    ],
)
def test_a_status_says_whether_a_repeat_may_help(status: int, retryable: bool) -> None:
    failure = failure_of(status, b"")
    assert (failure.type, failure.message, failure.retryable) == ("HTTP_ERROR", f"HTTP {status}", retryable)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": "no stock"}', "HTTP 500: no stock"),
        (b'{"message": "no stock"}', "HTTP 500: no stock"),
        (b'{"error": {"code": 7, "message": "no stock"}}', "HTTP 500: no stock"),
        (b'{"error": null, "message": "no stock"}', "HTTP 500: no stock"),
        (b'{"error": ["no", "stock"]}', "HTTP 500"),
        (b'{"detail": "no stock"}', "HTTP 500"),
        (b'"no stock"', "HTTP 500: no stock"),
        (b"<html>Traceback</html>", "HTTP 500"),
        (b'{"error": "cut', "HTTP 500"),
        (b'{"error": "a\\u001b[31m\\n\\u202eb\\tc"}', "HTTP 500: a [31m b c"),
    ],
)
def test_the_words_of_a_failure_are_the_tools_own_if_it_names_them(body: bytes, words: str) -> None:
    assert failure_of(500, body).message == words


def test_words_are_bounded() -> None:
    message = failure_of(500, b'{"error": "%s"}' % (b"x" * 10_000)).message
    assert message == "HTTP 500: " + "x" * (MAX_WORDS - 1) + "…"


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_a_redirect_is_a_failure_without_any_words_of_it(status: int) -> None:
    failure = failure_of(status, b'{"error": "inside"}')
    assert (failure.type, failure.retryable) == ("BLOCKED_ADDRESS", False)
    assert failure.message == f"HTTP {status}: redirects are not followed"


def test_what_was_sent_in_headers_is_not_told() -> None:
    hidden = ("token-1234", "Bearer token-1234")
    told = failure_of(401, b'{"error": "bad: Bearer token-1234, token-1234"}', hidden=hidden)
    assert told.message == "HTTP 401: bad: [redacted], [redacted]"
    assert "[redacted]" in failure_of(200, b"echo: token-1234", hidden=hidden).message
    # Not even a part of one, where the words are cut.
    long = b'{"error": "%s token-1234"}' % (b"x" * (MAX_WORDS - 6))
    assert "tok" not in failure_of(401, long, hidden=hidden).message
