"""What is particular about one endpoint: the options of a registered model on this wire."""

from __future__ import annotations

from typing import Annotated, Any, Final

import httpx
from pydantic import Field

from app.adapters.options import checked
from app.adapters.wire_options import AnswerLimits, HeaderName, HeaderValue, not_ours, url_below
from app.ports.provider import ModelEndpoint

DEFAULT_BASE_URL: Final = "https://api.anthropic.com/v1"

BodyField = Annotated[str, not_ours(frozenset({"model", "messages", "stream", "system"}))]


class MessagesProfile(AnswerLimits):
    """How an endpoint differs from what the wire promises."""

    max_tokens: int = Field(default=4096, ge=1)
    """How long an answer may be where the request does not say; the wire demands a number."""
    version: HeaderValue = "2023-06-01"
    """What `anthropic-version` says."""
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Further request headers; an `Authorization` here takes the place of the bare API key."""
    extra_body: dict[BodyField, Any] = Field(default_factory=dict)
    """Fields for every request body, such as `thinking`; those of the single request go before them."""
    native_tools: bool = True
    """Whether the endpoint takes `tools`."""
    native_schema: bool = True
    """Whether the endpoint takes a JSON Schema as `output_config.format`."""
    prefill: bool = False
    """Whether the endpoint goes on from a last assistant message by itself; models from 4.6 on refuse one."""


def profile_of(endpoint: ModelEndpoint) -> MessagesProfile:
    """The endpoint's options. Raises `Invalid` with pointers."""
    return checked(endpoint.options, MessagesProfile)


def url_of(endpoint: ModelEndpoint) -> httpx.URL:
    """Where messages are asked for; a query of the base URL is kept. Raises `Invalid`."""
    return url_below(DEFAULT_BASE_URL if endpoint.base_url is None else endpoint.base_url, "/messages")
