"""Build the prompt of one turn from a branch's conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.core.messages import InstructionContent
from app.core.operate.asking import Asking
from app.core.operate.history import History
from app.core.operate.params import OperateParams
from app.core.operate.transcript import instruction_text, json_of
from app.core.prompt import Prompt, PromptMessage, ToolSchema

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
_BYTES_PER_TOKEN = 4


def build_prompt(
    history: History,
    params: OperateParams,
    asking: Asking,
    *,
    system: str | None = None,
    provided: Mapping[str, Any] | None = None,
) -> Prompt:
    """The prompt for a new instruction, to which context providers have `provided` what is under their names.

    `history` is without the new instruction. Results of earlier tool calls are shown as they were, a null and
    an error too: as tool messages where the model made the call natively and the endpoint takes tools, else
    as text in the next instruction.
    """
    # Servers refuse tool messages in a request that declares no tools.
    transcript = history.transcript(native=bool(asking.native_tools))
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
        demands.append(("Tools", f"{_TOLD_TOOLS_RULE}\n{json_of(list(params.tool_schemas))}"))
    if params.include_token_usage_to_model:
        texts = (message.text for message in transcript.messages)
        demands.append(("Token usage", token_usage((system or "", *texts, instruction_text(instruction)))))
    transcript.instruct(instruction, demands)
    messages = transcript.messages
    return Prompt(
        messages=[PromptMessage("system", system), *messages] if system else messages,
        tools=asking.native_tools,
        response_schema=asking.native_schema,
        schema_name=_schema_name(asking),
        options=params.model_options,
    )


def token_usage(said: Iterable[str]) -> str:
    """About how many tokens all of this takes, in words; no server is asked."""
    tokens = sum(-(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN) for text in said)
    return f"The conversation takes about {tokens} tokens so far, images and tools not counted."


def _demands(asking: Asking) -> list[tuple[str, str]]:
    """What the prompt has to say because the endpoint has no way of its own to say it."""
    demands: list[tuple[str, str]] = []
    if asking.shown_tools:
        listed = json_of([_shown_tool(tool) for tool in asking.shown_tools])
        demands.append(("Tools", f"{_TOOLS_RULE}\n{listed}"))
    if asking.shown_schema is not None:
        demands.append(("Response format", f"{_ANSWER_RULE}\n{json_of(asking.shown_schema)}"))
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
