"""The view of a log that shows callbacks: their order, and what each is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from app.core.events.base import Callback, Event
from app.core.events.session import StreamInit
from app.core.events.tool import ToolRequested
from app.core.record import EventEntry
from tests.support.logs import BRANCH, RUN, Writer, reader

BIG = 12345678901234567890123


def fired(writer: Writer, types: Iterable[str] | None = None) -> list[tuple[int, str, Any, bool]]:
    """seq, name and arguments of each callback, and whether it is the last of its event."""
    kinds = None if types is None else frozenset(types)
    items = list(reader().callbacks(writer.entries, kinds))
    told = [(seq, name, orjson.loads(text), last) for seq, name, text, last in items]
    assert [(item["seq"], item["name"]) for _, _, item, _ in told] == [item[:2] for item in items]
    return [(seq, name, item["args"], last) for seq, name, item, last in told]


def wrote(*events: Event) -> Writer:
    writer = Writer()
    for event in events:
        writer.log.event(event, 0, 1, 0)
    return writer


def test_on_event_follows_on_token() -> None:
    writer = Writer()
    for piece in ("Hel", 'l"o'):
        writer.say(piece)
    assert fired(writer) == [
        (1, "on_token", ["Hel"], False),
        (1, "on_event", [{"type": "token", "text": "Hel"}], True),
        (2, "on_token", ['l"o'], False),
        (2, "on_event", [{"type": "token", "text": 'l"o'}], True),
    ]


def test_on_event_follows_on_tool_call() -> None:
    callback = Callback("on_tool_call", ("add", "call_1", {"a": 1}))
    assert fired(wrote(ToolRequested("add", "call_1", {"a": 1}).then(callback))) == [
        (1, "on_tool_call", ["add", "call_1", {"a": 1}], False),
        (
            1,
            "on_event",
            [{"type": "tool_call", "toolName": "add", "toolCallId": "call_1", "arguments": {"a": 1}}],
            True,
        ),
    ]


def test_on_event_follows_on_complete_with_the_text() -> None:
    writer = Writer()
    writer.say("done")
    writer.complete()
    state = {"content": "done", "tokenCount": 1, "checkpoint": ""}
    assert fired(writer, ["COMPLETE"]) == [
        (2, "on_complete", [state], False),
        (2, "on_event", [{"type": "complete", "tokenCount": 1, "contentLength": 4, "state": state}], True),
    ]


def test_a_text_that_is_too_long_is_null_among_arguments_and_told_of_in_objects() -> None:
    writer = Writer()
    writer.say("a" * 5_000)
    writer.save(5_000)
    writer.complete()
    where = {"from_seq": 1, "to_seq": 1, "length": 5_000}
    state = {"content": None, "contentRef": where, "tokenCount": 1, "checkpoint": ""}
    assert [item[1:3] for item in fired(writer, ["CHECKPOINT_SAVED", "COMPLETE"])] == [
        ("on_checkpoint", [None, 1]),
        ("on_complete", [state]),
        ("on_event", [{"type": "complete", "tokenCount": 1, "contentLength": 5_000, "state": state}]),
    ]


def test_an_event_without_callbacks_shows_nothing() -> None:
    on_start = Callback("on_start", (1, False, False))
    writer = wrote(StreamInit(), StreamInit().then(on_start), ToolRequested("add", "c", {}))
    assert fired(writer) == [(2, "on_start", [1, False, False], True)]


def test_several_callbacks_of_an_event_come_in_order() -> None:
    first, second = Callback("on_start", (1, False, False)), Callback("on_resume", ("text", 3))
    assert [item[1::2] for item in fired(wrote(StreamInit().then(first, second)))] == [
        ("on_start", False),
        ("on_resume", True),
    ]


def test_types_are_those_of_the_events() -> None:
    writer = Writer()
    writer.say("a")
    writer.save(1)
    assert [item[1] for item in fired(writer, ["TOKEN"])] == ["on_token", "on_event"]
    assert [item[1] for item in fired(writer, ["CHECKPOINT_SAVED"])] == ["on_checkpoint"]


def test_a_callback_says_where_it_fired() -> None:
    writer = Writer()
    writer.say("a")
    ((_, _, text, _), _) = reader().callbacks(writer.entries)
    (event,) = map(orjson.loads, reader().as_json(writer.entries))
    shared = {name: event[name] for name in event if name not in ("type", "meta", "callbacks")}
    assert orjson.loads(text) == {**shared, "name": "on_token", "args": ["a"]}
    assert (shared["run_id"], shared["branch_id"]) == (str(RUN), str(BRANCH))


def test_arguments_keep_their_digits_and_depth() -> None:
    deep: Any = BIG
    for _ in range(80):
        deep = {"in": deep}
    arguments = {"n": BIG, "deep": deep}
    writer = wrote(ToolRequested("f", "c", arguments).then(Callback("on_tool_call", ("f", "c", arguments))))
    (entry,) = writer.entries
    assert isinstance(entry, EventEntry)
    texts = [text for _, _, text, _ in reader().callbacks([entry])]
    assert [text.count(str(BIG)) for text in texts] == [2, 2]
