"""Build the prompt of one turn from a branch's messages; linear in their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from app.core.operate.asking import Asking
from app.core.operate.params import OperateParams
from app.core.prompt import Prompt, PromptMessage, PromptToolCall, ToolSchema

_ANSWER_RULE = (
    "Answer with one JSON value that satisfies this JSON Schema. "
    "Write the JSON alone: no words before or after it, no code fence."
)
_TOOLS_RULE = (
    "These tools can be called for you. To have one called, put it into `action_requests` with its name as "
    "`function` and its `arguments`; an empty list calls none. You do not see results in this turn."
)
_TOLD_TOOLS_RULE = (
    "These tools exist. They cannot be called in this turn; they are described for your answer."
)
_NO_RESULT = "no result was recorded"
_BYTES_PER_TOKEN = 4

Called = tuple[ActionRequestContent, ActionResponseContent | None]


def build_prompt(
    history: Sequence[Message],
    params: OperateParams,
    asking: Asking,
    *,
    system: str | None = None,
    provided: Mapping[str, Any] | None = None,
) -> Prompt:
    """The prompt for a new instruction, to which context providers have `provided` what is under their names.

    `history` is the branch in order, without the new instruction. Results of earlier tool calls are shown as
    they were, a null and an error too: as tool messages where the model made the call natively and the
    endpoint takes tools, else as text in the next instruction.
    """
    # Servers refuse tool messages in a request that declares no tools.
    transcript = _Transcript(native=bool(asking.native_tools))
    if system:
        transcript.add(PromptMessage("system", system))
    transcript.replay(history)
    instruction = InstructionContent(
        params.instruction,
        params.guidance,
        params.context,
        params.images,
        image_detail=params.image_detail,
        provided=provided or {},
    )
    demands = _demands(asking)
    if params.tool_schemas:
        demands.append(("Tools", f"{_TOLD_TOOLS_RULE}\n{_json(list(params.tool_schemas))}"))
    if params.include_token_usage_to_model:
        said = (*(message.text for message in transcript.messages), instruction_text(instruction))
        demands.append(("Token usage", token_usage(said)))
    transcript.instruct(instruction, demands)
    return Prompt(
        messages=transcript.messages,
        tools=asking.native_tools,
        response_schema=asking.native_schema,
        schema_name=_schema_name(asking),
        options=params.model_options,
    )


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


def token_usage(said: Iterable[str]) -> str:
    """About how many tokens all of this takes, in words; no server is asked."""
    tokens = sum(-(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN) for text in said)
    return f"The conversation takes about {tokens} tokens so far, images and tools not counted."


class _Transcript:
    """The messages so far, and the tool results that no message has shown yet."""

    def __init__(self, *, native: bool) -> None:
        self.messages: list[PromptMessage] = []
        self._native = native
        self._untold: list[dict[str, Any]] = []
        self._uses: dict[str, int] = {}

    def add(self, message: PromptMessage) -> None:
        """Put a message at the end."""
        self.messages.append(message)

    def replay(self, history: Sequence[Message]) -> None:
        """Put all that was said at the end."""
        position = 0
        while position < len(history):
            content = history[position].content
            position += 1
            match content:
                case SystemContent(text):
                    self.add(PromptMessage("system", text))
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
        results = [("Results of earlier tool calls", _json(self._untold))] if self._untold else []
        text = instruction_text(content, [*results, *demands])
        self._untold = []
        images = tuple(content.images)
        self.add(PromptMessage("user", text, images=images, image_detail=content.image_detail))

    def _answer(self, content: AssistantContent, calls: Sequence[Called]) -> None:
        replayed = [call for call in calls if self._is_native(call)]
        ids = [self._unused(request.provider_call_id or "") for request, _ in replayed]
        tool_calls = tuple(
            PromptToolCall(id, request.function, _object(request.arguments))
            for id, (request, _) in zip(ids, replayed, strict=True)
        )
        if content.text or tool_calls:
            self.add(PromptMessage("assistant", content.text, tool_calls=tool_calls))
        for id, (_, response) in zip(ids, replayed, strict=True):
            self.add(PromptMessage("tool", _result_text(response), tool_call_id=id))
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


def _demands(asking: Asking) -> list[tuple[str, str]]:
    """What the prompt has to say because the endpoint has no way of its own to say it."""
    demands: list[tuple[str, str]] = []
    if asking.shown_tools:
        listed = _json([_shown_tool(tool) for tool in asking.shown_tools])
        demands.append(("Tools", f"{_TOOLS_RULE}\n{listed}"))
    if asking.shown_schema is not None:
        demands.append(("Response format", f"{_ANSWER_RULE}\n{_json(asking.shown_schema)}"))
    return demands


def _shown_tool(tool: ToolSchema) -> dict[str, Any]:
    return {"function": tool.name, "description": tool.description, "arguments": tool.parameters}


def _schema_name(asking: Asking) -> str:
    """A name that every provider takes: letters, digits, `_` and `-`, at most 64."""
    if asking.contract is None:
        return "Response"
    title = str(asking.contract.request["title"])
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in title)
    return kept[-64:]


def _result_text(response: ActionResponseContent | None) -> str:
    if response is None:
        return _json({"error": _NO_RESULT})
    return response.output if isinstance(response.output, str) else _json(response.output)


def _worded(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _object(arguments: Any) -> Mapping[str, Any]:
    return arguments if isinstance(arguments, Mapping) else {}


def _json(value: Any) -> str:
    return dumps(value).decode()
