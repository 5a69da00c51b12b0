"""Say in our words how a call of a model server failed."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp
import httpx
import orjson

from app.adapters.http_errors import AddressRefused, Disconnected, DnsError, TlsError
from app.core import json_text
from app.core.faults import Fault, FaultKind
from app.core.masking import Mask

MESSAGE_CHARS: Final = 2_000
EXCERPT_CHARS: Final = 200
DETAIL_CHARS: Final = 16_000

_CONNECTION: Final[tuple[tuple[type[httpx.HTTPError], FaultKind, str, str], ...]] = (
    (TlsError, FaultKind.TLS, "tls_error", "the TLS handshake failed; check base_url and the certificate"),
    (AddressRefused, FaultKind.INTERNAL, "address_refused", "the model server's address is not allowed"),
    (DnsError, FaultKind.NETWORK, "dns_error", "the model server's name has no address; check base_url"),
    (
        httpx.ConnectTimeout,
        FaultKind.NETWORK,
        "connect_timeout",
        "the model server did not take the connection; check that it runs at base_url",
    ),
    (httpx.ConnectError, FaultKind.NETWORK, "connect_error", "no connection to the model server"),
    (httpx.ReadTimeout, FaultKind.NETWORK, "read_timeout", "the model server fell silent"),
    (httpx.ReadError, FaultKind.NETWORK, "connection_reset", "the connection was reset"),
    (
        Disconnected,
        FaultKind.NETWORK,
        "connection_closed",
        "the connection was closed before the answer was complete",
    ),
    (httpx.RemoteProtocolError, FaultKind.MALFORMED, "bad_http", "the model server's answer is not HTTP"),
    (httpx.TransportError, FaultKind.INTERNAL, "bad_request", "the request could not be sent"),
)
"""The first that fits counts."""


def connection_fault(error: httpx.TransportError) -> Fault:
    """What one of `http_errors` means."""
    kind, word, message = next(row[1:] for row in _CONNECTION if isinstance(error, row[0]))
    cause = error.__cause__
    if isinstance(cause, aiohttp.ClientConnectorError) and cause.os_error.errno == errno.ECONNREFUSED:
        word = "connection_refused"
        message = "the model server refused the connection; check that it runs at base_url"
    if not isinstance(error, httpx.TimeoutException):  # whose words would add nothing but the URL
        message = f"{message}: {_cut(' '.join(str(error).split()), EXCERPT_CHARS)}"
    return Fault(kind, message, type=word)


def _hint(status: int) -> str:
    """What to do about a status where the server does not say it."""
    match status:
        case 401 | 403:
            return "check the model's API key"
        case 404 | 405:
            return "check base_url and the model's name"
        case _ if 300 <= status < 400:
            return "redirects are not followed: check base_url"
    return ""


def status_fault(status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> Fault:
    """An HTTP status that is no success; `body` may be the beginning of the body only."""
    error = _error_in(body)
    words = _words(error)
    detail = _rest_of(error)
    if request_id := headers.get("x-request-id") or headers.get("request-id"):
        detail["request_id"] = request_id[:EXCERPT_CHARS]
    message = f"HTTP {status}: {words}" if words else f"the model server answered with HTTP status {status}"
    if not isinstance(error, dict) and (hint := _hint(status)):
        message = f"{message} ({hint})"
    return Fault(
        FaultKind.STATUS,
        message,
        type=_type(error) or "http_status",
        status=status,
        provider_code=_code(error),
        retry_after_ms=retry_after_ms(headers, now),
        detail=detail,
    )


def error_object_fault(error: Any) -> Fault:
    """An error object, or bare words, in the place of an answer or in its middle."""
    return Fault(
        FaultKind.IN_STREAM,
        _words(error) or "the model server reported an error without words",
        type=_type(error),
        status=_status(error),
        provider_code=_code(error),
        detail=_rest_of(error),
    )


def no_completion(seen: bytes) -> Fault:
    """Something else in the place of an answer."""
    return malformed("the answer is no completion; check base_url", seen)


def malformed(message: str, seen: bytes = b"", *, type: str = "malformed") -> Fault:
    """An answer that breaks its wire format; `seen` is quoted in short."""
    quoted = _cut(seen[: 4 * EXCERPT_CHARS].decode("utf-8", "replace"), EXCERPT_CHARS)
    return Fault(FaultKind.MALFORMED, f"{message}: {quoted!r}" if seen else message, type=type)


def retry_after_ms(headers: Mapping[str, str], now: datetime) -> int | None:
    """How long `headers` ask us to wait: `retry-after-ms`, or `Retry-After` in seconds or as a date.

    A date is measured from the answer's own `Date`, so that a wrong clock on either side does not matter;
    from `now` when it has none.
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return int(milliseconds)
    asked = headers.get("retry-after")
    if (seconds := _number(asked)) is not None:
        return int(seconds * 1000)
    until = _date(asked)
    if until is None:
        return None
    wait = until - (_date(headers.get("date")) or now)
    return max(0, int(wait.total_seconds() * 1000))


def without_secrets(fault: Fault, secrets: Iterable[str]) -> Fault:
    """The same fault with every occurrence of a secret masked; servers like to quote a bad key."""
    mask = Mask(secrets).all
    return Fault(
        fault.kind,
        mask(fault.message),
        type=mask(fault.type),
        status=fault.status,
        provider_code=mask(fault.provider_code),
        retry_after_ms=fault.retry_after_ms,
        detail=mask(fault.detail),
    )


def _error_in(body: bytes) -> Any:
    """The error object of an error answer's body, or its words."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace").strip()
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        return value.get("error") or value
    return value


def _words(error: Any) -> str:
    if isinstance(error, dict):
        words = error.get("message") or error.get("detail") or error.get("error")
        error = words if isinstance(words, str) else _as_text(words or error)
    return _cut(error, MESSAGE_CHARS) if isinstance(error, str) else ""


def _type(error: Any) -> str:
    kind = error.get("type") if isinstance(error, dict) else None
    return _cut(kind, EXCERPT_CHARS) if isinstance(kind, str) else ""


def _code(error: Any) -> str | int | None:
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str):
        return _cut(code, EXCERPT_CHARS)
    return code if isinstance(code, int) and not isinstance(code, bool) else None


_STATUS_BY_CODE: Final = {
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "internal_server_error": 500,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "context_length_exceeded": 400,
}
"""Codes that are the name of a status."""


def _status(error: Any) -> int | None:
    """The HTTP status that an error object names: its `status_code`, or a `code` that stands for one."""
    if not isinstance(error, dict):
        return None
    for key in ("status_code", "code", "status"):
        value = error.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    code = error.get("code")
    return _STATUS_BY_CODE.get(code) if isinstance(code, str) else None


def _rest_of(error: Any) -> dict[str, Any]:
    """What else an error object says, for a diagnosis; a long value is cut, as text."""
    if not isinstance(error, dict):
        return {}
    said = ("message", "type", "code", "status_code")
    rest = [(key, value) for key, value in error.items() if key not in said and value is not None]
    return {_cut(str(key), EXCERPT_CHARS): bounded(value) for key, value in rest[:20]}


def bounded(value: Any, limit: int = DETAIL_CHARS) -> Any:
    """A JSON value that can be stored; one whose text has more than `limit` characters is cut, as text."""
    if isinstance(value, str):
        return _cut(value, limit)
    text = _as_text(value)
    try:
        return json_text.read(text) if len(text) <= limit else _cut(text, limit)
    except json_text.NotJson:
        return _cut(text, limit)


def _as_text(value: Any) -> str:
    """JSON, or Python's own notation for what is none."""
    try:
        return json_text.dumps(value).decode()
    except json_text.NotJson:
        return repr(value)


def _cut(text: str, limit: int) -> str:
    return json_text.storable(text if len(text) <= limit else text[: limit - 1] + "…")


def _number(text: str | None) -> float | None:
    """A number of at most nine digits before the point: what is longer is no waiting time."""
    if text is None or not text.isascii():
        return None
    whole, _, part = text.strip().partition(".")
    return float(text) if whole.isdigit() and len(whole) <= 9 and (part.isdigit() or not part) else None


def _date(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        value = parsedate_to_datetime(text)
    except ValueError:
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)
