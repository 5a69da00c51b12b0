"""What the lines of other programs say in our own lines, as data.

Nothing here is ours to define: each profile follows what its program's documentation says of its output. A
line that no rule is about says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from app.adapters.command_model.settings import Format

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sum:
    """A number that a line tells in parts."""

    paths: tuple[str, ...]


Where = str | tuple[str, ...] | Sum
"""A path of names with dots between them, or several of which the first counts that leads somewhere."""


@dataclass(frozen=True, slots=True)
class Say:
    """One of our lines."""

    type: str
    members: Mapping[str, Where] = field(default_factory=dict)
    """Where in the other line its members stand; one that stands nowhere is left out."""
    fixed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a line says that looks so."""

    when: Mapping[str, Any]
    """Paths, and what stands there; None is nothing."""
    says: tuple[Say, ...]
    each: str | None = None
    """Where a list stands; each of its elements in turn is then `block`."""


def say(type: str, fixed: Mapping[str, Any] | None = None, **members: Where) -> Say:
    """One of our lines, in short."""
    return Say(type, members, fixed or {})


def whole_text(where: str) -> tuple[Say, ...]:
    """A message of its own."""
    return (say("message"), say("text", text=where))


# Claude Code: `claude -p --verbose --output-format stream-json`

_SAID: Final = {"type": "assistant", "parent_tool_use_id": None, "error": None}
"""A message of the main conversation: those of sub-agents name the tool use that they work for."""

_CLAUDE_MESSAGES: Final = (
    Rule({**_SAID, "block.type": "text"}, whole_text("block.text"), each="message.content"),
    Rule(
        {**_SAID, "block.type": "thinking"},
        (say("reasoning", text="block.thinking"),),
        each="message.content",
    ),
)

_STREAMED: Final = {"type": "stream_event", "parent_tool_use_id": None}
_BLOCK: Final = {**_STREAMED, "event.type": "content_block_start"}
_DELTA: Final = {**_STREAMED, "event.type": "content_block_delta"}

_CLAUDE_PIECES: Final = (
    Rule({**_BLOCK, "event.content_block.type": "text"}, (say("message"),)),
    Rule({**_DELTA, "event.delta.type": "text_delta"}, (say("text", text="event.delta.text"),)),
    Rule({**_DELTA, "event.delta.type": "thinking_delta"}, (say("reasoning", text="event.delta.thinking"),)),
)

_CLAUDE_REST: Final = (
    Rule(
        {"type": "assistant", "block.type": "tool_use"},
        (say("tool_use", id="block.id", name="block.name", arguments="block.input"),),
        each="message.content",
    ),
    Rule(
        {"type": "user", "block.type": "tool_result"},
        (say("tool_result", id="block.tool_use_id", output="block.content", is_error="block.is_error"),),
        each="message.content",
    ),
    Rule(
        {"type": "result"},
        (
            say(
                "usage",
                input_tokens=Sum(
                    (
                        "usage.input_tokens",
                        "usage.cache_creation_input_tokens",
                        "usage.cache_read_input_tokens",
                    )
                ),
                output_tokens="usage.output_tokens",
                cached_input_tokens="usage.cache_read_input_tokens",
                cache_write_tokens="usage.cache_creation_input_tokens",
            ),
        ),
    ),
    Rule({"type": "result", "subtype": "success", "is_error": False}, (say("end", reason="stop_reason"),)),
    # Whatever else it is, it is no answer. An error of the model's server has its status.
    Rule(
        {"type": "result"},
        (say("error", message=("result", "errors"), code="subtype", status="api_error_status"),),
    ),
)

# Codex: `codex exec --json -`


def _item(event: str, type: str) -> dict[str, Any]:
    return {"type": f"item.{event}", "item.type": type}


_CODEX: Final = (
    Rule(_item("completed", "agent_message"), whole_text("item.text")),
    Rule(_item("completed", "reasoning"), (say("reasoning", text="item.text"),)),
    Rule(
        _item("started", "command_execution"),
        (say("tool_use", id="item.id", name="item.type", arguments="item.command"),),
    ),
    Rule(
        _item("completed", "command_execution"),
        (say("tool_result", id="item.id", output="item.aggregated_output", is_error="item.status"),),
    ),
    Rule(
        _item("started", "mcp_tool_call"),
        (say("tool_use", id="item.id", name="item.tool", arguments="item.arguments"),),
    ),
    Rule(
        _item("completed", "mcp_tool_call"),
        (say("tool_result", id="item.id", output=("item.error", "item.result"), is_error="item.status"),),
    ),
    # A change of files is told once it is done.
    Rule(
        _item("completed", "file_change"),
        (
            say("tool_use", id="item.id", name="item.type", arguments="item.changes"),
            say("tool_result", id="item.id", is_error="item.status"),
        ),
    ),
    Rule(
        _item("started", "web_search"),
        (say("tool_use", id="item.id", name="item.type", arguments="item.query"),),
    ),
    Rule(_item("completed", "web_search"), (say("tool_result", id="item.id", output="item.action"),)),
    Rule(
        {"type": "turn.completed"},
        (
            say(
                "usage",
                input_tokens="usage.input_tokens",
                output_tokens="usage.output_tokens",
                cached_input_tokens="usage.cached_input_tokens",
            ),
            say("end", {"reason": "stop"}),
        ),
    ),
    Rule({"type": "turn.failed"}, (say("error", message="error.message"),)),
    # It says the same of a connection that it makes anew, after which all is well.
    Rule({"type": "error"}, (say("complaint", message="message"),)),
)

_RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "claude": (*_CLAUDE_MESSAGES, *_CLAUDE_REST),
    "claude-partial": (*_CLAUDE_PIECES, *_CLAUDE_REST),
    "codex": _CODEX,
}


def _by_type(rules: tuple[Rule, ...]) -> dict[str, list[Rule]]:
    """The rules under the type of the lines that they are about, the last condition first: it tells most."""
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        when = {path: value for path, value in reversed(list(rule.when.items())) if path != "type"}
        found.setdefault(rule.when["type"], []).append(replace(rule, when=when))
    return found


_BY_TYPE: Final = {format: _by_type(rules) for format, rules in _RULES.items()}


def translated(format: Format, line: Line) -> Sequence[Line]:
    """What a line of a format says, in our own lines."""
    if format == "lines":
        return (line,)
    said: list[Line] = []
    type = line.get("type")
    for rule in _BY_TYPE[format].get(type, ()) if isinstance(type, str) else ():
        for view in (line,) if rule.each is None else _blocks(line, rule.each):
            if _looks_so(view, rule):
                said += [_said(told, view) for told in rule.says]
    return said


def _blocks(line: Line, each: str) -> Iterator[Line]:
    blocks = _at(line, each)
    for block in blocks if isinstance(blocks, list) else ():
        yield {**line, "block": block}


def _looks_so(line: Line, rule: Rule) -> bool:
    # This and `_at` run several times for every piece of an answer.
    for path, value in rule.when.items():  # noqa: SIM110
        if _at(line, path) != value:
            return False
    return True


def _said(told: Say, line: Line) -> Line:
    said = {"type": told.type, **told.fixed}
    for name, where in told.members.items():
        value = _at(line, where) if type(where) is str else _found(line, where)
        if value is not None:
            said[name] = value
    return said


def _found(line: Line, where: Where) -> Any:
    if isinstance(where, Sum):
        counts = [count for path in where.paths if type(count := _at(line, path)) is int]
        return sum(counts) if counts else None
    paths = (where,) if isinstance(where, str) else where
    return next((value for path in paths if (value := _at(line, path)) is not None), None)


@cache
def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _at(line: Any, path: str) -> Any:
    for name in _steps(path):
        if type(line) is not dict:
            return None
        line = line.get(name)
    return line
