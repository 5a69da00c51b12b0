"""What the options of every wire over HTTP have in common: headers, body fields, limits and the base URL."""

from __future__ import annotations

import re
from typing import Annotated, Final

import httpx
from pydantic import AfterValidator, Field

from app.adapters.answer_size import MAX_ANSWER_BYTES
from app.adapters.options import Options
from app.adapters.sse import DEFAULT_MAX_EVENT_BYTES
from app.core.errors import FieldError, Invalid
from app.ports.provider import ModelEndpoint

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]{0,8000}")
"""Printable ASCII: what every server reads in the same way."""

_OUR_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "upgrade",
    }
)


def _header_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError("is no name of a header")
    if name.lower() in _OUR_HEADERS:
        raise ValueError("is a header that is set by the service itself")
    return name


def _header_value(value: str) -> str:
    if not HEADER_VALUE.fullmatch(value):
        raise ValueError("is no value of a header")
    return value


HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[str, AfterValidator(_header_value)]


class AnswerLimits(Options):
    """How much of an answer is read."""

    max_event_bytes: int = Field(default=DEFAULT_MAX_EVENT_BYTES, ge=1024, le=1 << 30)
    """How long one event of the answer may be."""
    max_answer_bytes: int = Field(default=MAX_ANSWER_BYTES, ge=1024, le=MAX_ANSWER_BYTES)
    """How long the whole answer may be, as it comes."""


def not_ours(fields: frozenset[str]) -> AfterValidator:
    """Refuses the name of a body field that the service sets itself."""

    def body_field(name: str) -> str:
        if name in fields:
            raise ValueError("is a field that is set by the service itself")
        return name

    return AfterValidator(body_field)


def key_of(endpoint: ModelEndpoint) -> str:
    """The endpoint's API key, "" without one. Raises `Invalid` for a key that no header can hold."""
    key = endpoint.api_key or ""
    if not HEADER_VALUE.fullmatch(key):
        raise Invalid("the API key holds a line end or another character that cannot be sent")
    return key


def url_below(base_url: str, path: str) -> httpx.URL:
    """`path` below a base URL, whose query is kept. Raises `Invalid`."""
    try:
        base = httpx.URL(base_url)
        host = base.host  # Read only now: a name in Punycode that is none is found here.
    except httpx.InvalidURL as error:
        raise _bad_url(str(error)) from None
    except UnicodeError:
        raise _bad_url("the host is no name in Punycode, though it begins like one") from None
    if base.scheme not in ("http", "https") or not host or not 0 < (base.port or 1) < 65536:
        raise _bad_url("must be an absolute http or https URL")
    if base.userinfo or base.fragment:
        raise _bad_url("must hold neither credentials nor a fragment")
    return base.copy_with(path=base.path.rstrip("/") + path)


def _bad_url(message: str) -> Invalid:
    return Invalid("the base URL cannot be used", errors=[FieldError("/base_url", message)])
