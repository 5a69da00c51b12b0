"""What is particular about one endpoint: the options of a registered model on this wire."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import quote

import httpx
from pydantic import AfterValidator, Field

from app.adapters.bedrock_converse.signature import Credentials, Scope, signed
from app.adapters.options import checked
from app.adapters.wire_options import AnswerLimits, HeaderName, HeaderValue, key_of, url_below
from app.core.errors import Invalid
from app.ports.provider import ModelEndpoint

INFERENCE: Final = frozenset({"maxTokens", "stopSequences", "temperature", "topP"})
"""Options that stand in `inferenceConfig`."""
BESIDE: Final = frozenset(
    {
        "additionalModelRequestFields",
        "additionalModelResponseFieldPaths",
        "guardrailConfig",
        "inferenceConfig",
        "performanceConfig",
        "promptVariables",
        "requestMetadata",
        "serviceTier",
    }
)
"""Options that stand in the request itself."""


def unknown_options(options: Mapping[str, Any]) -> list[str]:
    """The names that the API does not have."""
    return [name for name in options if name not in INFERENCE | BESIDE]


def _known(options: dict[str, Any]) -> dict[str, Any]:
    if unknown := unknown_options(options):
        raise ValueError(f"the API has no option {', '.join(unknown)}")
    return options


class Profile(AnswerLimits):
    """How an endpoint is to be asked."""

    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,40}$")
    """Where it is, and what requests are signed for."""
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Further request headers, which are not signed."""
    extra_body: Annotated[dict[str, Any], AfterValidator(_known)] = Field(default_factory=dict)
    """Options for every request, in the API's words; those of the single request go before them."""
    native_tools: bool = True
    """Whether the model takes `toolConfig`."""
    native_schema: bool = True
    """Whether the model takes a JSON Schema as `outputConfig.textFormat`."""


def profile_of(endpoint: ModelEndpoint) -> Profile:
    """The endpoint's options. Raises `Invalid` with pointers."""
    return checked(endpoint.options, Profile)


def url_of(endpoint: ModelEndpoint, profile: Profile) -> httpx.URL:
    """Where a conversation is streamed from. Raises `Invalid`."""
    base_url = endpoint.base_url or f"https://bedrock-runtime.{profile.region}.amazonaws.com"
    url = url_below(base_url, "")
    if url.query:
        raise Invalid("the base URL of a Bedrock endpoint has no query")
    # What is in a model's name must not be taken for a part of the path.
    path = f"{url.path.rstrip('/')}/model/{quote(endpoint.model, safe='')}/converse-stream"
    return url.copy_with(raw_path=path.encode("ascii"))


def headers_of(
    endpoint: ModelEndpoint, profile: Profile, url: httpx.URL, body: bytes, now: datetime
) -> dict[str, str]:
    """The request's headers: signed with an access key, or with the key itself where it is one of Bedrock.

    Raises `Invalid` for a key that no header can hold.
    """
    key = key_of(endpoint)
    headers = {"Content-Type": "application/json", "Accept": "application/vnd.amazon.eventstream"}
    credentials = Credentials.of(key)
    if credentials is not None:
        bound = {"Host": url.netloc.decode("ascii"), "Content-Type": headers["Content-Type"]}
        scope = Scope(profile.region, "bedrock")
        path = url.raw_path.decode("ascii")
        # What is signed is sent as it is signed: the transport's own Host may be spelled otherwise.
        headers |= bound | signed(credentials, scope, now, "POST", path, bound, body)
    elif key:
        headers["Authorization"] = f"Bearer {key}"
    return headers | profile.headers


def secrets_in(endpoint: ModelEndpoint) -> list[str]:
    """What must not be quoted."""
    key = endpoint.api_key or ""
    credentials = Credentials.of(key)
    return [key] if credentials is None else [key, credentials.secret, credentials.token or ""]
