"""What is particular about one endpoint: the options of a registered model on this wire."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import httpx
from pydantic import Field

from app.adapters.options import Options, checked
from app.adapters.sse import DEFAULT_MAX_EVENT_BYTES
from app.core.errors import FieldError, Invalid
from app.ports.provider import ModelEndpoint

DEFAULT_BASE_URL: Final = "https://generativelanguage.googleapis.com/v1beta"

_UNSIGNED: Final = re.compile(r"(?:models/)?(?:gemini-[12](?!\d)|gemma-)")
"""Names of the models that never ask for the signature of a call."""

_KEY: Final = re.compile(r"[\x21-\x7e]{1,8000}")


class Profile(Options):
    """How an endpoint is to be asked."""

    native_tools: bool = True
    """Whether the model takes `tools`."""
    native_schema: bool = True
    """Whether the model takes a `responseSchema`."""
    json_schema: bool = False
    """Whether schemas are sent as they are, in `responseJsonSchema` and `parametersJsonSchema`."""
    sign_calls: bool | None = None
    """Whether earlier tool calls bear the word that stands for a lost signature; None judges by the name."""
    max_event_bytes: int = Field(default=DEFAULT_MAX_EVENT_BYTES, ge=1024, le=1 << 30)
    """How long one event of the answer may be."""


def profile_of(endpoint: ModelEndpoint) -> Profile:
    """The endpoint's options. Raises `Invalid` with pointers."""
    return checked(endpoint.options, Profile)


def signs_calls(endpoint: ModelEndpoint, profile: Profile) -> bool:
    """Whether tool calls of earlier turns need a signature."""
    if profile.sign_calls is not None:
        return profile.sign_calls
    return _UNSIGNED.match(endpoint.model) is None


def url_of(endpoint: ModelEndpoint) -> httpx.URL:
    """Where content is asked for; a query of the base URL is kept. Raises `Invalid`."""
    try:
        base = httpx.URL(DEFAULT_BASE_URL if endpoint.base_url is None else endpoint.base_url)
    except httpx.InvalidURL as error:
        raise _bad_url(str(error)) from None
    if base.scheme not in ("http", "https") or not base.host or not 0 < (base.port or 1) < 65536:
        raise _bad_url("must be an absolute http or https URL")
    if base.userinfo or base.fragment:
        raise _bad_url("must hold neither credentials nor a fragment")
    if "key" in base.params:
        raise _bad_url("must not hold the API key: it is sent in a header")
    model = endpoint.model if "/" in endpoint.model else f"models/{endpoint.model}"
    path = f"{base.raw_path.partition(b'?')[0].decode().rstrip('/')}/{quote(model)}:streamGenerateContent"
    query = base.params.set("alt", "sse")
    return base.copy_with(raw_path=f"{path}?{query}".encode())


def headers_of(endpoint: ModelEndpoint) -> dict[str, str]:
    """The request's headers, the credential included. Raises `Invalid` for a key that no header can hold."""
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    if endpoint.api_key:
        if not _KEY.fullmatch(endpoint.api_key):
            raise Invalid("the API key holds a line end or another character that cannot be sent")
        headers["x-goog-api-key"] = endpoint.api_key
    return headers


def _bad_url(message: str) -> Invalid:
    return Invalid("the base URL cannot be used", errors=[FieldError("/base_url", message)])
