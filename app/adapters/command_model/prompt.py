"""Put a conversation into a command's arguments and standard input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.adapters.command_model.command import Command
from app.adapters.command_model.settings import PLACEHOLDER
from app.core import json_text
from app.core.errors import Invalid
from app.core.prompt import Prompt, PromptMessage
from app.ports.provider import Opening

GO_ON: Final = (
    "Your answer was cut off there. Write what comes next, and nothing of what stands there already."
)
"""What the model is told after its own unfinished text."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a command is started with."""

    argv: tuple[str, ...]
    stdin: bytes


def given_to(command: Command, opening: Opening) -> Given:
    """The arguments and the input of one run. Raises `Invalid` and `NotJson`."""
    told = command.settings.told
    messages = _messages(opening)
    apart = any("{system}" in argument for argument in command.argv)
    system = "\n\n".join(message.text for message in messages if message.role == "system")
    if apart:
        messages = [message for message in messages if message.role != "system"]
    text = "" if told == "json" else _text(opening.prompt, messages)
    values = {"model": opening.endpoint.model, "system": system, "prompt": text}
    # In one pass: what a client wrote is not looked through for placeholders.
    argv = tuple(PLACEHOLDER.sub(lambda found: values[found[1]], argument) for argument in command.argv)
    if any("\0" in argument for argument in argv):
        raise Invalid("an argument of a command holds no NUL")
    if told == "json":
        return Given(argv, json_text.dumps(_object(opening, messages)) + b"\n")
    return Given(argv, b"" if told == "argument" else json_text.storable(text).encode())


def _messages(opening: Opening) -> Sequence[PromptMessage]:
    if not opening.continue_from.strip():
        return opening.prompt.messages
    unfinished = PromptMessage("assistant", opening.continue_from)
    return [
        *opening.prompt.messages,
        unfinished,
        PromptMessage("user", opening.continue_prompt or GO_ON),
    ]


def _object(opening: Opening, messages: Sequence[PromptMessage]) -> dict[str, Any]:
    prompt = opening.prompt
    said: dict[str, Any] = {
        "model": opening.endpoint.model,
        "messages": [_message(message) for message in messages],
        "options": dict(prompt.options),
    }
    if prompt.tools:
        said["tools"] = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in prompt.tools
        ]
    return said


def _message(message: PromptMessage) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.role, "text": json_text.storable(message.text)}
    if message.tool_calls:
        said["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": dict(call.arguments)}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        said["tool_call_id"] = message.tool_call_id
    if message.images:
        said["images"] = list(message.images)
    return said


def _text(prompt: Prompt, messages: Sequence[PromptMessage]) -> str:
    """A lone instruction as it is, a conversation with its roles. Raises `Invalid` for what has no text."""
    if prompt.options:
        raise Invalid(f"this command takes no options, such as {next(iter(prompt.options))!r}")
    if any(message.images for message in messages):
        raise Invalid("this command takes no images")
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].text
    return "\n\n".join(f"[{message.role}]\n{message.text}" for message in messages)
