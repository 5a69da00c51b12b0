"""Read what a tool of an MCP server answered: its output, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.core.json_schema import InvalidSchema, compiled_once
from app.ports.tool import ToolFailure

MCP_TOOL_ERROR: Final = "MCP_TOOL_ERROR"
INVALID_RESPONSE: Final = "INVALID_RESPONSE"
MAX_WORDS: Final = 2_000
"""Code points of a tool's own words in the message of an error."""
NOTHING: Final = object()
"""Stands for structured content that is not there; it may be null."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call, as the protocol has it."""

    content: Sequence[Mapping[str, Any]]
    """Blocks of text, images, sound, resources and links to some, as JSON."""
    structured: Any = NOTHING
    is_error: bool = False


def output_in(answer: Answer, schema: Mapping[str, Any] | None) -> Any:
    """The output. Raises `ToolFailure`.

    Structured content is the output, if it fits the tool's `schema` of outputs; where that is declared there
    has to be some. Else a single text is that text, no content is null, and anything else is the list of
    blocks.
    """
    if answer.is_error:
        raise ToolFailure(
            MCP_TOOL_ERROR, words_in(answer.content)[:MAX_WORDS] or "the tool failed without a word"
        )
    if schema is not None:
        _check(answer.structured, schema)
    if answer.structured is not NOTHING:
        return answer.structured
    match answer.content:
        case []:
            return None
        case [{"type": "text", "text": str(text)}]:
            return text
        case blocks:
            return list(blocks)


def _check(structured: Any, schema: Mapping[str, Any]) -> None:
    if structured is NOTHING:
        raise ToolFailure(
            INVALID_RESPONSE,
            "the tool declares an outputSchema and gave no structuredContent",
            retryable=False,
        )
    try:
        faults = compiled_once(schema, at="/outputSchema").check(structured)
    except InvalidSchema as error:  # pragma: no cover - it was compiled when it was listed
        raise ToolFailure(INVALID_RESPONSE, error.detail, retryable=False) from None
    if faults:
        told = "; ".join(f"{fault.pointer or '(value)'}: {fault.message}" for fault in faults)
        words = f"structuredContent does not fit the tool's outputSchema: {told}"
        raise ToolFailure(INVALID_RESPONSE, words[:MAX_WORDS], retryable=False)


def words_in(content: Sequence[Mapping[str, Any]]) -> str:
    """The texts among some blocks, as one."""
    texts = [str(block["text"]) for block in content if block.get("type") == "text"]
    return "\n".join(texts)
