"""The output of other programs, as their documentation tells it, in our own chunks."""

from __future__ import annotations

import json
from typing import Any

from app.adapters.command_model.command import Command
from app.adapters.command_model.output import OutputReader
from app.adapters.command_model.settings import Format
from app.core.chunks import (
    Chunk,
    EndMark,
    FinishReason,
    KeepAlive,
    MessageBreak,
    ReasoningDelta,
    TextDelta,
    ToolOutcome,
    ToolUse,
    UsageReport,
)
from app.core.faults import FaultKind
from tests.support.commands import settings

INIT = {"type": "system", "subtype": "init", "session_id": "s", "tools": ["Bash"], "model": "m"}
RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "num_turns": 2,
    "result": "There are two files.",
    "session_id": "s",
    "total_cost_usd": 0.01,
    "usage": {
        "input_tokens": 4,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 100,
        "output_tokens": 9,
    },
}
COUNTED = UsageReport(124, 9, cached_input_tokens=100, cache_write_tokens=20)
END: list[Chunk] = [COUNTED, EndMark()]


def assistant(*content: Any, parent: str | None = None, **more: Any) -> dict[str, Any]:
    message = {"id": "msg", "role": "assistant", "content": list(content)}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent, **more}


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": list(content)}, "parent_tool_use_id": None}


def event(parent: str | None = None, **event: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, "parent_tool_use_id": parent}


def read(format: Format, *lines: Any) -> tuple[list[Chunk], OutputReader]:
    of = OutputReader(Command(settings("x", format=format), ("x",), {}, ()))
    chunks: list[Chunk] = []
    for line in lines:
        if not of.over:
            chunks += of.feed(json.dumps(line).encode() + b"\n")
    return [chunk for chunk in chunks if not isinstance(chunk, KeepAlive)], of


TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
TOOL_RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a\nb", "is_error": False}
OBSERVED: list[Chunk] = [ToolUse("toolu_1", "Bash", {"command": "ls"}), ToolOutcome("toolu_1", "a\nb", False)]


def test_claude_message_by_message() -> None:
    chunks, of = read(
        "claude",
        INIT,
        assistant({"type": "thinking", "thinking": "hm", "signature": "x"}),
        assistant({"type": "text", "text": "I look."}),
        assistant(TOOL_USE),
        user(TOOL_RESULT),
        assistant({"type": "text", "text": "There are two files."}),
        {**RESULT, "stop_reason": "end_turn"},
    )
    assert chunks == [
        ReasoningDelta("hm"),
        MessageBreak(),
        TextDelta("I look."),
        *OBSERVED,
        MessageBreak(),
        TextDelta("There are two files."),
        COUNTED,
        FinishReason("stop", "end_turn"),
        EndMark(),
    ]
    assert of.complete


def test_claude_piece_by_piece() -> None:
    """Whole messages tell the same again, and are read for their tools alone."""
    chunks, of = read(
        "claude-partial",
        INIT,
        event(type="message_start", message={"usage": {"input_tokens": 1}}),
        event(type="content_block_start", index=0, content_block={"type": "thinking", "thinking": ""}),
        event(type="content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "hm"}),
        event(type="content_block_start", index=1, content_block={"type": "text", "text": ""}),
        event(type="content_block_delta", index=1, delta={"type": "text_delta", "text": "I "}),
        event(type="content_block_delta", index=1, delta={"type": "text_delta", "text": "look."}),
        event(type="content_block_delta", index=2, delta={"type": "input_json_delta", "partial_json": "{"}),
        assistant({"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."}, TOOL_USE),
        user(TOOL_RESULT),
        RESULT,
    )
    said = [MessageBreak(), TextDelta("I "), TextDelta("look.")]
    assert chunks == [ReasoningDelta("hm"), *said, *OBSERVED, *END]
    assert of.complete


def test_what_claudes_sub_agents_say_is_no_answer_but_their_tools_are_observed() -> None:
    chunks, _ = read(
        "claude",
        assistant({"type": "text", "text": "aside"}, TOOL_USE, parent="toolu_0"),
        assistant({"type": "text", "text": "main"}),
    )
    assert chunks == [OBSERVED[0], MessageBreak(), TextDelta("main")]
    chunks, _ = read(
        "claude-partial",
        event(parent="t", type="content_block_delta", delta={"type": "text_delta", "text": "aside"}),
    )
    assert chunks == []


def test_the_parts_of_a_message_are_told_in_their_order() -> None:
    parts = [{"type": "text", "text": "I look."}, TOOL_USE, "stray", {"type": "text", "text": "Done."}]
    chunks, _ = read("claude", assistant(*parts))
    assert chunks == [MessageBreak(), TextDelta("I look."), OBSERVED[0], MessageBreak(), TextDelta("Done.")]


def test_an_error_of_claudes_model_server_is_none_of_its_words() -> None:
    chunks, of = read(
        "claude",
        INIT,
        assistant({"type": "text", "text": "API Error: 529 overloaded"}, error="server_error"),
        {**RESULT, "is_error": True, "result": "API Error: 529 overloaded", "api_error_status": 529},
    )
    assert chunks == [COUNTED]
    assert of.fault is not None
    assert (of.fault.kind, of.fault.status) == (FaultKind.IN_STREAM, 529)
    assert of.fault.message == "API Error: 529 overloaded"


def test_claude_without_a_result_says_why() -> None:
    failed = {"type": "result", "subtype": "error_max_turns", "is_error": True, "errors": ["too many turns"]}
    _, of = read("claude", INIT, failed)
    assert of.fault is not None
    assert (of.fault.provider_code, of.fault.status) == ("error_max_turns", None)
    assert "too many turns" in of.fault.message
    assert not of.complete


THREAD = {"type": "thread.started", "thread_id": "t"}
TURN = {"type": "turn.started"}
DONE = {
    "type": "turn.completed",
    "usage": {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 2},
}


def item(word: str, type: str, id: str = "item_1", **more: Any) -> dict[str, Any]:
    return {"type": f"item.{word}", "item": {"id": id, "type": type, **more}}


def test_codex() -> None:
    chunks, of = read(
        "codex",
        THREAD,
        TURN,
        item("completed", "reasoning", "item_0", text="hm"),
        item("started", "command_execution", command="ls", aggregated_output="", status="in_progress"),
        item(
            "completed",
            "command_execution",
            command="ls",
            aggregated_output="a",
            exit_code=2,
            status="failed",
        ),
        item("started", "mcp_tool_call", "item_2", server="s", tool="find", arguments={"q": 1}),
        item("completed", "mcp_tool_call", "item_2", result={"content": []}, status="completed"),
        item("completed", "file_change", "item_3", changes=[{"path": "a"}], status="completed"),
        item("updated", "todo_list", "item_4", items=[]),
        item("completed", "error", "item_5", message="a warning"),
        item("completed", "agent_message", "item_6", text="Done."),
        DONE,
    )
    assert chunks == [
        ReasoningDelta("hm"),
        ToolUse("item_1", "command_execution", "ls"),
        ToolOutcome("item_1", "a", True),
        ToolUse("item_2", "find", {"q": 1}),
        ToolOutcome("item_2", {"content": []}, False),
        ToolUse("item_3", "file_change", [{"path": "a"}]),
        ToolOutcome("item_3", None, False),
        MessageBreak(),
        TextDelta("Done."),
        UsageReport(10, 2, cached_input_tokens=4),
        FinishReason("stop", "stop"),
        EndMark(),
    ]
    assert of.complete


def test_codex_that_connects_anew_goes_on() -> None:
    again = {"type": "error", "message": "Reconnecting... 1/5"}
    chunks, of = read("codex", THREAD, TURN, again, item("completed", "agent_message", text="Done."), DONE)
    assert TextDelta("Done.") in chunks
    assert (of.complete, of.fault) == (True, None)
    _, cut = read("codex", THREAD, TURN, again)
    assert not cut.complete
    assert cut.complaint is not None
    assert cut.complaint.message == "Reconnecting... 1/5"


def test_a_turn_of_codex_that_failed() -> None:
    _, of = read("codex", THREAD, TURN, {"type": "turn.failed", "error": {"message": "no credit"}})
    assert of.fault is not None
    assert (of.fault.kind, of.fault.message) == (FaultKind.IN_STREAM, "no credit")


def test_lines_of_another_shape_say_nothing() -> None:
    odd = [
        {"type": "assistant", "message": "text"},
        {"type": "assistant", "message": {"content": "text"}},
        {"type": "assistant", "message": {"content": [7, None, {"type": "text"}]}},
        {"type": "item.completed", "item": None},
        {"type": 7},
        {},
    ]
    formats: tuple[Format, ...] = ("claude", "claude-partial", "codex")
    for format in formats:
        chunks, of = read(format, *odd)
        assert [chunk for chunk in chunks if not isinstance(chunk, MessageBreak)] == []
        assert of.fault is None
