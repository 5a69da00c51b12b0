"""Partial values through a log: whatever a client has seen of it, it comes to know the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events.run import RunCompleted, RunFailed
from app.core.events.session import SessionStart
from app.core.partial.covers import is_beginning_of
from app.core.partial.log import PartialLog
from app.core.partial.places import place_of
from app.core.partial.reader import PartialReader
from app.core.record import Entry
from tests.support.logs import RUN, Writer, after, until
from tests.support.patching import UNSET, PartialClient, adds_to

ANYTHING = place_of({})
VALUE = {"a": [1, "two", {"b": None}], "text": "some words, é 🦦", "n": -1.5}


def frames(entries: Sequence[Entry], by: PartialLog) -> list[dict[str, Any]]:
    return [json.loads(frame.text) for frame in by.frames(entries)]


def writer(stream: int = 0) -> Writer:
    made = Writer()
    made.log.event(SessionStart(1, False, False, "main"), stream, 1, 0)
    return made


def ended(log: Writer, result: Any) -> list[Entry]:
    log.log.event(RunCompleted("completed", None, None), more=f'{{"result":{json.dumps(result)}}}')
    return log.entries


steps = st.lists(
    st.tuples(st.just("say"), st.text(alphabet='{}[]":,\\u2 ab1', max_size=4))
    | st.tuples(st.just("cut"), st.integers(0, 12))
    | st.tuples(st.just("fall"), st.just(0)),
    max_size=12,
)


@given(steps, st.data())
def test_a_log_read_in_any_pieces_tells_the_same(script: list[tuple[str, Any]], data: st.DataObject) -> None:
    log = writer()
    for what, how in script:
        if what == "say" and how:
            log.say(how)
        elif what == "cut":
            log.cut(min(how, len(log.texts.get(0, ""))))
        elif what == "fall":
            log.fall_back()
    entries = ended(log, VALUE)
    reader = PartialReader(ANYTHING)
    reader.feed(log.texts.get(0, ""))
    expected = reader.value

    last = entries[-1].last_seq
    seq = data.draw(st.integers(0, last))
    client = PartialClient()
    first = PartialLog(RUN, ANYTHING)
    for frame in frames(until(entries, seq), first):
        assert frame["seq"] <= seq
        client.take(frame)
    # It goes away, and comes back to somebody who has not seen its beginning.
    rest = after(entries, seq)
    second = PartialLog(RUN, ANYTHING)
    if rest and (behind := second.behind(rest)) is not None:
        second.tell(until(after(entries, behind), seq))
        assert second.behind(rest) is None
    for frame in frames(rest, second):
        client.take(frame)
    assert client.final is not None
    assert client.final["seq"] == last
    if client.value is UNSET:
        assert not isinstance(expected, dict | list | str)
    else:
        assert json.dumps(client.value) == json.dumps(expected)


def test_only_the_streams_that_write_the_result_are_read() -> None:
    log = writer()
    log.say('{"a": ')
    log.log.event(SessionStart(1, False, False, "voter", 1), 1, 1, 0)
    log.say('{"b": 2}', stream=1)
    log.log.event(SessionStart(1, False, False, "repair"), 2, 1, 0)
    log.say('{"c": 3}', stream=2)
    told = frames(ended(log, {"c": 3}), PartialLog(RUN, ANYTHING))
    assert [(frame["type"], frame.get("reason")) for frame in told] == [
        ("reset", "repair"),
        ("partial", None),
        ("final", None),
    ]
    assert told[1]["changes"][-1] == {"op": "add", "path": "/c", "value": 3}
    assert told[2]["continues"] is True


def test_what_was_never_begun_is_not_taken_back() -> None:
    log = writer()
    log.say("Let me th")
    log.cut(0)
    log.say('{"a": 1}')
    told = frames(ended(log, {"a": 1}), PartialLog(RUN, ANYTHING))
    assert [frame["type"] for frame in told] == ["partial", "final"]
    assert told[0]["attempt"] == 2


def test_without_a_place_there_is_a_result_and_nothing_is_needed_for_it() -> None:
    log = writer()
    log.say('{"a": 1}')
    entries = ended(log, "text")
    by = PartialLog(RUN, None)
    assert by.behind(entries[-1:]) is None
    (told,) = frames(entries[-1:], by)
    assert (told["value"], told["continues"]) == ("text", True)


@pytest.mark.parametrize(
    "number", [10**30 + 1, 10**400, 0.1], ids=["large", "larger than a double", "broken"]
)
def test_an_error_is_told_with_every_digit_of_its_numbers(number: float) -> None:
    log = writer()
    error = {"code": "PROVIDER_ERROR", "message": "no", "detail": {"more": number}}
    log.log.event(RunFailed("failed", None, error), more='{"result":null}')
    (told,) = frames(log.entries, PartialLog(RUN, ANYTHING))
    assert (told["status"], told["error"]) == ("failed", error)


WHOLE: list[tuple[Any, Any, bool]] = [
    ({}, {"a": 1}, True),
    ({"a": "te"}, {"a": "text", "b": 1}, True),
    ([1, {"a": []}], [1, {"a": [2]}, 3], True),
    ({"a": 1}, {"a": True}, False),
    ({"a": 1}, {"a": 1.0}, False),
    ({"a": 1}, {}, False),
    ({"a": "x"}, {"a": None}, False),
    ([1, 2], [1], False),
    ({}, [], False),
    ({}, None, False),
    ({"n": 2**70}, {"n": 2**70}, True),
]


@pytest.mark.parametrize(("shown", "whole", "goes_on"), WHOLE)
def test_what_goes_on(shown: Any, whole: Any, goes_on: bool) -> None:
    assert is_beginning_of(copy.deepcopy(shown), json.dumps(whole)) is goes_on
    assert adds_to(shown, whole) is goes_on


def test_a_result_that_cannot_be_read_goes_on_from_nothing() -> None:
    assert is_beginning_of({}, "{") is False
    assert is_beginning_of([], "[" * 600 + "]" * 600) is False
