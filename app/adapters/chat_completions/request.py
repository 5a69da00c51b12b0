"""Put a prompt into the form that a chat completions endpoint takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from app.adapters.chat_completions.messages import written
from app.adapters.chat_completions.profile import Profile
from app.adapters.wire_options import key_of
from app.core import json_text
from app.core.prompt import Prompt, PromptMessage
from app.ports.provider import ModelEndpoint, Opening

CONTINUE: Final = (
    "Your last message was cut off. Go on exactly where it ends, in the middle of a word if need be. Repeat "
    "nothing of it, do not begin anew, and add no remark."
)
"""What a model is told that should go on from its own unfinished answer."""

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARS: Final = 64
_LIMITS: Final = ("max_tokens", "max_completion_tokens")


def headers_of(endpoint: ModelEndpoint, profile: Profile) -> dict[str, str]:
    """The request's headers, the credential included. Raises `Invalid` for a key that no header can hold."""
    key = key_of(endpoint)
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    if key and profile.api_key_header:
        headers[profile.api_key_header] = key
    elif key and not any(name.lower() == "authorization" for name in profile.headers):
        headers["Authorization"] = f"Bearer {key}"
    return headers | profile.headers


def body_of(opening: Opening, profile: Profile) -> bytes:
    """The request's body.

    The endpoint's `extra_body` comes first, then the prompt's options, then what the wire demands. Text to
    continue from is an assistant message; unless the endpoint goes on from such a message by itself, the
    model is then told to. No schema is enforced on what is only the rest of a value.
    """
    prompt = opening.prompt
    body: dict[str, Any] = {**profile.extra_body, **prompt.options}
    body["model"] = opening.endpoint.model
    body.pop("messages", None)
    body["stream"] = True
    if profile.include_usage:
        body["stream_options"] = {"include_usage": True}
    if prompt.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            }
            for tool in prompt.tools
        ]
    if prompt.response_schema is not None and not opening.continue_from:
        body["response_format"] = {"type": "json_schema", "json_schema": _schema(prompt, profile)}
    _name_the_limit(body, profile)
    # Put together as bytes: what was said in earlier turns is there already.
    messages = b",".join(written(_messages(opening, profile), opening.endpoint, profile))
    return b'%b,"messages":[%b]}' % (json_text.dumps(body)[:-1], messages)


def _name_the_limit(body: dict[str, Any], profile: Profile) -> None:
    """Send the limit of the answer by the name that the endpoint knows."""
    if (wanted := profile.max_tokens_field) is None:
        return
    for name in _LIMITS:
        if name != wanted and name in body:
            value = body.pop(name)
            body.setdefault(wanted, value)


def _messages(opening: Opening, profile: Profile) -> Sequence[PromptMessage]:
    said = opening.prompt.messages
    if not opening.continue_from:
        return said
    unfinished = PromptMessage("assistant", opening.continue_from)
    if opening.continue_prompt is None and profile.prefill:
        return [*said, unfinished]
    return [*said, unfinished, PromptMessage("user", opening.continue_prompt or CONTINUE)]


def _schema(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    name = _NOT_IN_NAMES.sub("_", prompt.schema_name)[:_NAME_CHARS].strip("_") or "Response"
    schema: dict[str, Any] = {"name": name, "schema": dict(prompt.response_schema or {})}
    if profile.strict_schema:
        schema["strict"] = True
    return schema
