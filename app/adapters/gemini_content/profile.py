"""What is particular about one endpoint: the options of a registered model on this wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import quote

import httpx
from pydantic import AfterValidator, Field

from app.adapters.gemini_content.words import unknown_options
from app.adapters.options import checked
from app.adapters.wire_options import AnswerLimits, HeaderName, HeaderValue, key_of, url_below
from app.core.errors import FieldError, Invalid
from app.ports.provider import ModelEndpoint

DEFAULT_BASE_URL: Final = "https://generativelanguage.googleapis.com/v1beta"

_UNSIGNED: Final = re.compile(r"(?:models/)?(?:gemini-[12](?!\d)|gemma-)")
"""Names of the models that never ask for the signature of a call."""


def _known(options: dict[str, Any]) -> dict[str, Any]:
    if unknown := unknown_options(options):
        raise ValueError(f"the API has no option {', '.join('.'.join(path) for path in unknown)}")
    return options


class Profile(AnswerLimits):
    """How an endpoint is to be asked."""

    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Further request headers; an `Authorization` here takes the place of the API key's own header."""
    extra_body: Annotated[dict[str, Any], AfterValidator(_known)] = Field(default_factory=dict)
    """Options for every request, in the API's words; those of the single request go before them."""
    native_tools: bool = True
    """Whether the model takes `tools`."""
    native_schema: bool = True
    """Whether the model takes a `responseSchema`."""
    json_schema: bool = False
    """Whether schemas are sent as they are, in `responseJsonSchema` and `parametersJsonSchema`."""
    sign_calls: bool | None = None
    """Whether earlier tool calls bear the word that stands for a lost signature; None judges by the name."""


def profile_of(endpoint: ModelEndpoint) -> Profile:
    """The endpoint's options. Raises `Invalid` with pointers."""
    return checked(endpoint.options, Profile)


def signs_calls(endpoint: ModelEndpoint, profile: Profile) -> bool:
    """Whether tool calls of earlier turns need a signature."""
    if profile.sign_calls is not None:
        return profile.sign_calls
    return _UNSIGNED.match(endpoint.model) is None


def url_of(endpoint: ModelEndpoint) -> httpx.URL:
    """Where content is asked for, as an event stream; a query of the base URL is kept. Raises `Invalid`."""
    model = endpoint.model if "/" in endpoint.model else f"models/{endpoint.model}"
    base_url = DEFAULT_BASE_URL if endpoint.base_url is None else endpoint.base_url
    url = url_below(base_url, f"/{quote(model)}:streamGenerateContent")
    if "key" in url.params:
        error = FieldError("/base_url", "must not hold the API key, which is sent in a header")
        raise Invalid("the base URL cannot be used", errors=[error])
    return url.copy_set_param("alt", "sse")


def headers_of(endpoint: ModelEndpoint, profile: Profile) -> Mapping[str, str]:
    """The request's headers, the credential included. Raises `Invalid` for a key that no header can hold."""
    key = key_of(endpoint)
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    if key and not any(name.lower() == "authorization" for name in profile.headers):
        headers["x-goog-api-key"] = key
    return headers | profile.headers
