"""Callbacks as handlers and webhooks are told of them: in order, with or without those that are derived."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, get_args
from uuid import UUID

from app.adapters.handlers.declare import ARGUMENTS, Handlers
from app.core.callbacks import CALLBACKS, DERIVED, STORED, CallbackName, callbacks
from app.core.events.base import Callback
from app.core.events.session import Complete, SessionStart
from app.core.events.tool import ToolRequested
from app.core.record import Entry, Reader, TokenBlock
from app.services.entries import entry_of

RUN, BRANCH = UUID(int=1), UUID(int=2)
STATE = {"tokenCount": 2}
START = SessionStart(1, False, False, "main").then(Callback("on_start", (1, False, False)))
ARGUMENT = {"n": 10**30}
CALL = ToolRequested("add", "c1", ARGUMENT).then(Callback("on_tool_call", ("add", "c1", ARGUMENT)))
LOG: list[Entry] = [
    entry_of(START, 1, 10, 0, 1, 0),
    TokenBlock(2, 20, 0, 1, 0, ['a"', "b"], [0, 5]),
    entry_of(CALL, 4, 30, 0, 1, 0),
    entry_of(ToolRequested("add", "c2", {}), 5, 30),
    entry_of(Complete(2, 2, STATE).then(Callback("on_complete", (STATE,))), 6, 40, 0, 1, 0),
]


def read(*, derived: bool = True, branch: UUID | None = BRANCH) -> list[tuple[int, str, dict[str, Any]]]:
    reader = Reader(RUN, branch, '{"order":"4711"}')
    return [(seq, name, json.loads(text)) for seq, name, text in callbacks(reader, LOG, derived=derived)]


def test_stored_and_derived_ones_come_in_order() -> None:
    meta = {"toolName": "add", "toolCallId": "c1", "arguments": ARGUMENT}
    complete = {"type": "complete", "tokenCount": 2, "contentLength": 2, "state": STATE}
    assert [(seq, name, said["args"]) for seq, name, said in read()] == [
        (1, "on_start", [1, False, False]),
        (2, "on_token", ['a"']),
        (2, "on_event", [{"type": "token", "text": 'a"'}]),
        (3, "on_token", ["b"]),
        (3, "on_event", [{"type": "token", "text": "b"}]),
        (4, "on_tool_call", ["add", "c1", ARGUMENT]),
        (4, "on_event", [{"type": "tool_call", **meta}]),
        (6, "on_complete", [STATE]),
        (6, "on_event", [complete]),
    ]


def test_each_says_where_it_belongs() -> None:
    _, _, said = read()[3]
    assert {name: value for name, value in said.items() if name not in ("stream_id", "args")} == {
        "seq": 3,
        "ts": 25,
        "run_id": str(RUN),
        "branch_id": str(BRANCH),
        "attempt": 1,
        "fallback_index": 0,
        "context": {"order": "4711"},
        "name": "on_token",
    }


def test_a_run_may_have_no_branch() -> None:
    assert {said["branch_id"] for _, _, said in read(branch=None)} == {None}


def test_derived_ones_can_be_left_out() -> None:
    assert [name for _, name, _ in read(derived=False)] == ["on_start", "on_tool_call", "on_complete"]


def test_the_fourteen_are_the_same_everywhere() -> None:
    assert len(set(CALLBACKS)) == 14
    assert set(CALLBACKS) == set(STORED) | set(DERIVED) == set(ARGUMENTS) == set(get_args(CallbackName))
    assert {member.name for member in fields(Handlers)} == set(CALLBACKS)
