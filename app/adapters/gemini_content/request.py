"""Put a prompt into the form that the Gemini API takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from app.adapters.gemini_content.parts import content_parts, result_part, signed_parts, whole_parts
from app.adapters.gemini_content.profile import Profile, signs_calls
from app.adapters.gemini_content.schema import project
from app.adapters.gemini_content.words import placed, unknown_options
from app.core import json_text
from app.core.errors import FieldError, Invalid
from app.core.prompt import Prompt, PromptMessage, ToolSchema
from app.ports.provider import ModelEndpoint, Opening

CONTINUE: Final = (
    "What you said last breaks off. Carry on from its very end, even inside a word; say none of it again, do "
    "not start over, and write nothing about doing so."
)
"""What a model is told that should go on from its own unfinished answer."""


def body_of(opening: Opening, profile: Profile) -> bytes:
    """The request's body. Raises `Invalid` for options that the API does not know, and for bad images.

    Text to continue from is a turn of the model's, after which the model is told to go on. No schema is
    enforced on what is only the rest of a value.
    """
    prompt = opening.prompt
    body, config = _options(prompt.options, profile)
    if system := [message for message in prompt.messages if message.role == "system"]:
        body["systemInstruction"] = {"parts": [{"text": json_text.storable(said.text)} for said in system]}
    if prompt.tools:
        body["tools"] = [{"functionDeclarations": [_declared(tool, profile) for tool in prompt.tools]}]
    if prompt.response_schema is not None and not opening.continue_from:
        key = "responseJsonSchema" if profile.json_schema else "responseSchema"
        config |= {"responseMimeType": "application/json", key: dict(prompt.response_schema)}
    if (resolution := _resolution(prompt)) is not None:
        config.setdefault("mediaResolution", resolution)
    if config:
        body["generationConfig"] = config
    # Put together as bytes: what was said in earlier turns is there already.
    contents = b",".join(
        _contents(_said(opening), opening.endpoint, signed=signs_calls(opening.endpoint, profile))
    )
    rest = json_text.dumps(body)[1:]
    return b'{"contents":[%b]%b%b' % (contents, b"," if body else b"", rest)


def _options(options: Mapping[str, Any], profile: Profile) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of the request, and those of `generationConfig`; the endpoint's own come first."""
    if unknown := unknown_options(options):
        names = ", ".join(".".join(path) for path in unknown)
        errors = [FieldError(json_text.pointer(*path), "is no option of the API") for path in unknown]
        raise Invalid(f"the Gemini API has no option {names}", errors=errors)
    (body, config), (own_body, own_config) = placed(options), placed(profile.extra_body)
    return own_body | body, own_config | config


def _declared(tool: ToolSchema, profile: Profile) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": tool.name, "description": tool.description}
    if tool.parameters.get("properties") == {}:
        return declared  # the API refuses an object without properties
    projected = None if profile.json_schema else project(tool.parameters)
    if projected is None:
        declared["parametersJsonSchema"] = dict(tool.parameters)
    else:
        declared["parameters"] = projected
    return declared


def _resolution(prompt: Prompt) -> str | None:
    """How closely the images are to be looked at: the API has one measure for all of them."""
    asked = {message.image_detail for message in prompt.messages if message.images}
    if "high" in asked:
        return "MEDIA_RESOLUTION_HIGH"
    return "MEDIA_RESOLUTION_LOW" if asked == {"low"} else None


def _said(opening: Opening) -> Sequence[PromptMessage]:
    said = [message for message in opening.prompt.messages if message.role != "system"]
    if not opening.continue_from:
        return said
    go_on = PromptMessage("user", opening.continue_prompt or CONTINUE)
    return [*said, PromptMessage("assistant", opening.continue_from), go_on]


def _contents(said: Iterable[PromptMessage], to: ModelEndpoint, *, signed: bool) -> list[bytes]:
    """The turns: neighbours of one kind become one, for the API wants all results of a turn together."""
    turns: list[tuple[str, list[bytes]]] = []
    names: dict[str, str] = {}
    for message in said:
        names |= {call.id: call.name for call in message.tool_calls}
        kind = message.role
        if kind == "tool" and (name := names.get(message.tool_call_id or "")):
            parts = result_part(name, message.text)
        else:
            if message.opaque_for(to.provider, to.model):
                render = whole_parts
            else:
                render = signed_parts if signed else content_parts
            parts = message.rendered(render)
            kind = "user" if kind == "tool" else kind
        if not parts:
            continue  # the API refuses a turn without parts
        if not turns or turns[-1][0] != kind:
            turns.append((kind, []))
        turns[-1][1].append(parts)
    return [
        b'{"role":"%b","parts":[%b]}' % (b"model" if kind == "assistant" else b"user", b",".join(parts))
        for kind, parts in turns
    ]
