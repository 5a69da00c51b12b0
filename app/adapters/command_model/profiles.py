"""What the lines of other programs say in our own lines, as data.

Nothing here is ours to define: each profile follows what its program's documentation says of its output. A
line that no rule is about says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

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


# What follows runs for every piece of an answer: paths are taken apart once, and nothing is copied.

_Steps = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Member:
    """Where a member of ours is found."""

    name: str
    is_sum: bool
    places: tuple[tuple[bool, _Steps], ...]


@dataclass(frozen=True, slots=True)
class _Ready:
    """A rule with its paths taken apart: whether one begins at the block, and its names from there."""

    when: tuple[tuple[bool, _Steps, Any], ...]
    """The last condition first, which tells most; the line's type is known by then."""
    says: tuple[tuple[Mapping[str, Any], tuple[_Member, ...]], ...]
    """The fixed members, and the others."""

    @classmethod
    def of(cls, rule: Rule) -> Self:
        when = [(*_parts(path), value) for path, value in rule.when.items() if path != "type"]
        says = [
            ({"type": told.type, **told.fixed}, tuple(map(_member, told.members.items())))
            for told in rule.says
        ]
        return cls(tuple(reversed(when)), tuple(says))


def _member(of: tuple[str, Where]) -> _Member:
    name, where = of
    paths = (where,) if isinstance(where, str) else where.paths if isinstance(where, Sum) else where
    return _Member(name, isinstance(where, Sum), tuple(map(_parts, paths)))


def _parts(path: str) -> tuple[bool, _Steps]:
    steps = tuple(path.split("."))
    return (True, steps[1:]) if steps[0] == "block" else (False, steps)


def _by_type(rules: tuple[Rule, ...]) -> dict[str, list[tuple[_Steps, list[_Ready]]]]:
    """The rules under the type of the lines that they are about; those on the blocks of one list together."""
    found: dict[str, list[tuple[_Steps, list[_Ready]]]] = {}
    for rule in rules:
        each = tuple(rule.each.split(".")) if rule.each else ()
        groups = found.setdefault(rule.when["type"], [])
        if not groups or groups[-1][0] != each:
            groups.append((each, []))
        groups[-1][1].append(_Ready.of(rule))
    return found


_BY_TYPE: Final = {format: _by_type(rules) for format, rules in _RULES.items()}
_NO_BLOCK: Final = (None,)


def translated(format: Format, line: Line) -> Sequence[Line]:
    """What a line of a format says, in our own lines."""
    if format == "lines":
        return (line,)
    said: list[Line] = []
    type = line.get("type")
    for each, rules in _BY_TYPE[format].get(type, ()) if isinstance(type, str) else ():
        blocks = _at(line, each) if each else _NO_BLOCK
        for block in blocks if isinstance(blocks, list | tuple) else ():
            for rule in rules:
                for of_block, steps, value in rule.when:
                    if _at(block if of_block else line, steps) != value:
                        break
                else:
                    said += [_said(fixed, members, line, block) for fixed, members in rule.says]
    return said


def _said(fixed: Mapping[str, Any], members: tuple[_Member, ...], line: Line, block: Any) -> Line:
    said = dict(fixed)
    for member in members:
        value = None
        for of_block, steps in member.places:
            found = _at(block if of_block else line, steps)
            if member.is_sum:
                value = found + (value or 0) if type(found) is int else value
            elif found is not None:
                value = found
                break
        if value is not None:
            said[member.name] = value
    return said


def _at(value: Any, steps: _Steps) -> Any:
    for name in steps:
        if type(value) is not dict:
            return None
        value = value.get(name)
    return value
