"""Retell a conversation as prompt messages; linear in the messages that are retold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.core.json_text import dumps
from app.core.messages import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantContent,
    InstructionContent,
    Message,
    SystemContent,
)
from app.core.prompt import PromptMessage, PromptToolCall

_NO_RESULT = "no result was recorded"

Called = tuple[ActionRequestContent, ActionResponseContent | None]


@dataclass(frozen=True, slots=True)
class Retold:
    """What a stretch of a conversation, from its start on, comes to in a prompt."""

    messages: Sequence[PromptMessage] = ()
    untold: Sequence[Mapping[str, Any]] = ()
    """Tool results that no message has shown yet: the next instruction does."""
    uses: Mapping[str, int] = field(default_factory=dict)
    """How often each id of a tool call was asked for: providers use one again in later turns."""


class Transcript:
    """Takes what was said, in order, and holds what a model is shown of it."""

    def __init__(self, *, native: bool, after: Retold | None = None) -> None:
        """`native` shows calls that models made themselves as tool messages; `after` is what came before."""
        after = after or Retold()
        self._native = native
        self._messages = list(after.messages)
        self._untold = list(after.untold)
        self._uses = dict(after.uses)

    @property
    def messages(self) -> list[PromptMessage]:
        """All that is shown so far."""
        return self._messages

    def so_far(self) -> Retold:
        """What another transcript can go on from; this one is done with."""
        return Retold(self._messages, self._untold, self._uses)

    def replay(self, history: Sequence[Message]) -> None:
        """Put all that was said at the end.

        An answer and the calls after it belong together, and so do calls in a row: they must not be cut.
        """
        position = 0
        while position < len(history):
            content = history[position].content
            position += 1
            match content:
                case SystemContent(text):
                    self._messages.append(PromptMessage("system", text))
                case InstructionContent():
                    self.instruct(content)
                case AssistantContent():
                    end = _end_of_actions(history, position)
                    self._answer(content, _calls(history[position:end]))
                    position = end
                case _:
                    end = _end_of_actions(history, position - 1)
                    self._tell_later(_calls(history[position - 1 : end]))
                    position = end

    def instruct(self, content: InstructionContent, demands: Iterable[tuple[str, str]] = ()) -> None:
        """Put an instruction at the end, with the results that are still untold."""
        results = [("Results of earlier tool calls", json_of(self._untold))] if self._untold else []
        text = instruction_text(content, [*results, *demands])
        self._untold = []
        images = tuple(content.images)
        self._messages.append(PromptMessage("user", text, images=images, image_detail=content.image_detail))

    def _answer(self, content: AssistantContent, calls: Sequence[Called]) -> None:
        replayed = [call for call in calls if self._is_native(call)]
        ids = [self._unused(request.provider_call_id or "") for request, _ in replayed]
        tool_calls = tuple(
            PromptToolCall(id, request.function, _object(request.arguments))
            for id, (request, _) in zip(ids, replayed, strict=True)
        )
        # A turn that is not told as it was said, with all of its calls, cannot have them.
        as_said = ids == [call.id for call in content.tool_calls]
        if content.text or tool_calls:
            opaque = content.opaque if as_said else None
            said = PromptMessage("assistant", content.text, tool_calls=tool_calls, opaque=opaque)
            self._messages.append(said)
        for id, (_, response) in zip(ids, replayed, strict=True):
            self._messages.append(PromptMessage("tool", _result_text(response), tool_call_id=id))
        self._tell_later(call for call in calls if not self._is_native(call))

    def _tell_later(self, calls: Iterable[Called]) -> None:
        for request, response in calls:
            self._untold.append(
                {
                    "function": request.function,
                    "arguments": request.arguments,
                    "output": None if response is None else response.output,
                    "error": _NO_RESULT if response is None else response.error,
                }
            )

    def _unused(self, provider_id: str) -> str:
        """The provider's id, or one made of it where the provider has used it twice."""
        uses = self._uses[provider_id] = self._uses.get(provider_id, 0) + 1
        return provider_id if uses == 1 else self._unused(f"{provider_id}_{uses}")

    def _is_native(self, call: Called) -> bool:
        return self._native and call[0].provider_call_id is not None


def instruction_text(content: InstructionContent, extra: Iterable[tuple[str, str]] = ()) -> str:
    """An instruction as a model reads it: alone when it is alone, else under headings."""
    sections = [
        ("Guidance", _worded(content.guidance)),
        ("Instruction", _worded(content.instruction)),
        ("Context", _worded(content.context)),
        *((f"Context from {name}", _worded(added)) for name, added in content.provided.items()),
        *extra,
    ]
    said = [(heading, text) for heading, text in sections if text]
    if len(said) == 1 and said[0][0] == "Instruction":
        return said[0][1]
    return "\n\n".join(f"## {heading}\n{text}" for heading, text in said)


def _end_of_actions(history: Sequence[Message], start: int) -> int:
    end = start
    while end < len(history) and history[end].role == "action":
        end += 1
    return end


def _calls(actions: Sequence[Message]) -> list[Called]:
    """Requests in their order, each with its response."""
    responses = {
        message.content.action_request_id: message.content
        for message in actions
        if isinstance(message.content, ActionResponseContent)
    }
    return [
        (message.content, responses.get(str(message.id)))
        for message in actions
        if isinstance(message.content, ActionRequestContent)
    ]


def _result_text(response: ActionResponseContent | None) -> str:
    if response is None:
        return json_of({"error": _NO_RESULT})
    return response.output if isinstance(response.output, str) else json_of(response.output)


def _worded(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_of(value)


def _object(arguments: Any) -> Mapping[str, Any]:
    return arguments if isinstance(arguments, Mapping) else {}


def json_of(value: Any) -> str:
    """A value as a model reads it."""
    return dumps(value).decode()
