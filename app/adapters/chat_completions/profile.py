"""What is particular about one endpoint: the options of a registered model on this wire."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import httpx
from pydantic import AfterValidator, Field

from app.adapters.options import Options, checked
from app.adapters.sse import DEFAULT_MAX_EVENT_BYTES
from app.core.errors import FieldError, Invalid
from app.ports.provider import ModelEndpoint

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"

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
_OUR_FIELDS: Final = frozenset({"model", "messages", "stream", "stream_options"})


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


def _body_field(name: str) -> str:
    if name in _OUR_FIELDS:
        raise ValueError("is a field that is set by the service itself")
    return name


HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[str, AfterValidator(_header_value)]
BodyField = Annotated[str, AfterValidator(_body_field)]


class Profile(Options):
    """How an endpoint differs from what the wire promises."""

    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Further request headers; an `Authorization` here takes the place of ours."""
    api_key_header: HeaderName | None = None
    """The header that takes the bare API key, where it is not `Authorization: Bearer …`."""
    extra_body: dict[BodyField, Any] = Field(default_factory=dict)
    """Fields for every request body; those of the single request go before them."""
    native_tools: bool = True
    """Whether the endpoint takes `tools`."""
    native_schema: bool = True
    """Whether the endpoint takes a JSON Schema as `response_format`."""
    prefill: bool = False
    """Whether the endpoint goes on from a last assistant message by itself, without being told to."""
    strict_schema: bool = False
    """Whether the schema is sent with `strict: true`, which OpenAI allows for a part of JSON Schema only."""
    schema_profile: Literal["llama.cpp"] | None = None
    """The engine whose limits a schema has to be fitted to; answers are checked against the whole schema."""
    include_usage: bool = True
    """Whether usage is asked for with `stream_options`."""
    inline_think_tags: bool = False
    """Whether the text may hold reasoning in `<think>` tags."""
    inline_tool_call_tags: bool = False
    """Whether the text may hold tool calls in `<tool_call>` tags."""
    max_event_bytes: int = Field(default=DEFAULT_MAX_EVENT_BYTES, ge=1024, le=1 << 30)
    """How long one event of the answer may be."""


def profile_of(endpoint: ModelEndpoint) -> Profile:
    """The endpoint's options. Raises `Invalid` with pointers."""
    return checked(endpoint.options, Profile)


def url_of(endpoint: ModelEndpoint) -> httpx.URL:
    """Where completions are asked for; a query of the base URL is kept. Raises `Invalid`."""
    try:
        base = httpx.URL(DEFAULT_BASE_URL if endpoint.base_url is None else endpoint.base_url)
    except httpx.InvalidURL as error:
        raise _bad_url(str(error)) from None
    if base.scheme not in ("http", "https") or not base.host or not 0 < (base.port or 1) < 65536:
        raise _bad_url("must be an absolute http or https URL")
    if base.userinfo or base.fragment:
        raise _bad_url("must hold neither credentials nor a fragment")
    return base.copy_with(path=base.path.rstrip("/") + "/chat/completions")


def _bad_url(message: str) -> Invalid:
    return Invalid("the base URL cannot be used", errors=[FieldError("/base_url", message)])
