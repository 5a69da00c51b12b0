"""What is particular about one endpoint: the options of a registered model on this wire."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import httpx
from pydantic import Field

from app.adapters.chat_completions.servers import ServerName, server_of
from app.adapters.options import checked
from app.adapters.wire_options import AnswerLimits, HeaderName, HeaderValue, not_ours, url_below
from app.core.errors import FieldError, Invalid
from app.ports.provider import ModelEndpoint

_OUR_FIELDS: Final = frozenset({"model", "messages", "stream", "stream_options"})


BodyField = Annotated[str, not_ours(_OUR_FIELDS)]


class Profile(AnswerLimits):
    """How an endpoint differs from what the wire promises."""

    server: ServerName | None = None
    """Whose endpoint it is: what `servers.SERVERS` has for it stands for all options that are not given."""
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
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    """By which name the limit of the answer is sent; None sends the name that the request has."""
    system_role: Literal["system", "developer"] = "system"
    """By which name the system's words are sent."""
    call_ids: Literal["any", "nine"] = "any"
    """`nine` where ids of tool calls have to be nine letters and digits."""
    reasoning_back: Literal["reasoning_details", "reasoning_content"] | None = None
    """What the endpoint wants back of its reasoning: all details, or the text of turns with tool calls."""
    inline_think_tags: bool = False
    """Whether the text may hold reasoning in `<think>` tags."""
    inline_tool_call_tags: bool = False
    """Whether the text may hold tool calls in `<tool_call>` tags."""


def profile_of(endpoint: ModelEndpoint) -> Profile:
    """The endpoint's options. Raises `Invalid` with pointers."""
    return checked({**server_of(endpoint.options).options, **endpoint.options}, Profile)


def url_of(endpoint: ModelEndpoint) -> httpx.URL:
    """Where completions are asked for; a query of the base URL is kept. Raises `Invalid`."""
    base_url = server_of(endpoint.options).base_url if endpoint.base_url is None else endpoint.base_url
    if base_url is None:
        raise Invalid("the model needs a base URL", errors=[FieldError("/base_url", "is missing", "missing")])
    return url_below(base_url, "/chat/completions")
