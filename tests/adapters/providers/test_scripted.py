"""Scripts are checked strictly and replayed exactly."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.adapters.providers.scripted import BATCH, ScriptedProvider
from app.core.chunks import Chunk, EndMark, FinishReason, TextDelta
from app.core.errors import Invalid
from app.core.faults import Fault, FaultKind
from app.ports.provider import ModelEndpoint
from tests.conftest import DATA
from tests.support.answers import ask, opening

pytestmark = pytest.mark.anyio

Steps = list[dict[str, Any]]
PROVIDER = ScriptedProvider()


def script(*streams: list[Steps]) -> dict[str, Any]:
    return {"streams": [{"attempts": attempts} for attempts in streams]}


def check(options: dict[str, Any]) -> list[tuple[str, str]]:
    """Pointer and code of what is wrong with a script."""
    try:
        PROVIDER.check(ModelEndpoint("m", "scripted", "m", options=options))
    except Invalid as error:
        return [(fault.pointer, fault.code) for fault in error.errors]
    return []


async def batches(steps: Steps) -> list[list[Chunk]]:
    async with PROVIDER.open(opening("scripted", options=script([steps]))) as answer:
        return [list(batch) async for batch in answer]


@pytest.mark.parametrize(
    ("stream_index", "attempt", "text"),
    [(0, 1, "a1"), (0, 2, "a2"), (0, 3, "a2"), (1, 1, "b1"), (1, 9, "b1"), (2, 1, "b1"), (7, 7, "b1")],
)
async def test_the_opening_names_the_attempt_and_the_last_repeats(
    stream_index: int, attempt: int, text: str
) -> None:
    options = script([[{"text": "a1"}], [{"text": "a2"}]], [[{"text": "b1"}]])
    what = opening("scripted", options=options, stream_index=stream_index, attempt=attempt)
    assert (await ask(PROVIDER, what)).text == text


async def test_what_follows_without_a_wait_comes_together() -> None:
    steps: Steps = [{"text": "a"}, {"text": "b"}, {"wait_ms": 1}, {"text": "c"}, {"end": "stop"}]
    assert await batches(steps) == [
        [TextDelta("a"), TextDelta("b")],
        [TextDelta("c"), FinishReason("stop", "stop"), EndMark()],
    ]


async def test_a_long_script_lets_others_have_their_turn() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(other())
    got = await batches([{"text": "x"}] * (10 * BATCH))
    working.cancel()
    assert [len(batch) for batch in got] == [BATCH] * 10
    assert turns >= 10


@pytest.mark.parametrize(
    ("end", "finish"),
    [
        ("length", [FinishReason("length", "length")]),
        ("moonrise", [FinishReason(None, "moonrise")]),
        (None, []),
    ],
)
async def test_ends(end: str | None, finish: list[Chunk]) -> None:
    assert await batches([{"end": end}]) == [[*finish, EndMark()]]


@pytest.mark.parametrize("kind", FaultKind)
async def test_errors_of_every_kind(kind: FaultKind) -> None:
    error = {"kind": kind.value, "type": "t", "status": 503, "message": "m", "code": "c", "retry_after_ms": 9}
    fault = Fault(kind, "m", "t", 503, "c", 9)
    assert check(script([[{"error": error}]])) == []
    at_once = await ask(PROVIDER, opening("scripted", options=script([[{"error": error}]])))
    assert (at_once.opened, at_once.fault) == (False, fault)
    later = await ask(PROVIDER, opening("scripted", options=script([[{"text": "a"}, {"error": error}]])))
    assert (later.opened, later.text, later.fault) == (True, "a", fault)


async def test_an_error_after_the_opening_wait_still_fails_the_opening() -> None:
    steps: Steps = [{"open_wait_ms": 1}, {"error": {"kind": "network"}}]
    assert not (await ask(PROVIDER, opening("scripted", options=script([steps])))).opened


async def test_a_wait_first_passes_after_the_opening() -> None:
    async with PROVIDER.open(opening("scripted", options=script([[{"wait_ms": 3_600_000}]]))) as answer:
        waiting = asyncio.ensure_future(anext(answer))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()


@pytest.mark.parametrize(
    ("options", "faults"),
    [
        ({}, [("/options/streams", "missing")]),
        ({"streams": []}, [("/options/streams", "invalid")]),
        ({"streams": [{"attempts": []}]}, [("/options/streams/0/attempts", "invalid")]),
        ({"streams": [{}]}, [("/options/streams/0/attempts", "missing")]),
        ({"streams": {}, "x": 1}, [("/options/streams", "invalid"), ("/options/x", "unknown_field")]),
        (script([[]]), []),
        (
            script([[{"text": "a"}]], [[], [{"txt": "a"}]]),
            [("/options/streams/1/attempts/1/0/txt", "unknown_field")],
        ),
        (script([[{}]]), [("/options/streams/0/attempts/0/0", "invalid")]),
        (script([[{"text": "a", "end": "stop"}]]), [("/options/streams/0/attempts/0/0", "invalid")]),
        (script([[{"text": None}]]), [("/options/streams/0/attempts/0/0", "invalid")]),
        (script([[{"end": None}]]), []),
        (script([[{"text": 5}]]), [("/options/streams/0/attempts/0/0/text", "invalid")]),
        (script([[{"wait_ms": -1}]]), [("/options/streams/0/attempts/0/0/wait_ms", "invalid")]),
        (script([[{"wait_ms": "5"}]]), [("/options/streams/0/attempts/0/0/wait_ms", "invalid")]),
        (script([[{"wait_ms": True}]]), [("/options/streams/0/attempts/0/0/wait_ms", "invalid")]),
        (script([[{"error": {"kind": "odd"}}]]), [("/options/streams/0/attempts/0/0/error/kind", "invalid")]),
        (script([[{"error": {"kind": "status"}}]]), [("/options/streams/0/attempts/0/0/error", "invalid")]),
        (script([[{"error": {}}]]), [("/options/streams/0/attempts/0/0/error/kind", "missing")]),
        (
            script([[{"tool_call": {"name": "f"}}]]),
            [("/options/streams/0/attempts/0/0/tool_call/index", "missing")],
        ),
        (
            script([[{"usage": {"input_tokens": 1}}]]),
            [("/options/streams/0/attempts/0/0/usage/output_tokens", "missing")],
        ),
        (script([[{"end": "stop"}, {"text": "a"}]]), [("/options/streams/0/attempts/0/1", "invalid")]),
        (
            script([[{"error": {"kind": "network"}}, {"text": "a"}]]),
            [("/options/streams/0/attempts/0/1", "invalid")],
        ),
        (script([[{"text": "a"}, {"open_wait_ms": 1}]]), [("/options/streams/0/attempts/0/1", "invalid")]),
        ({"streams": [{"attempts": [["text"]]}]}, [("/options/streams/0/attempts/0/0", "invalid")]),
    ],
)
def test_a_script_is_checked(options: dict[str, Any], faults: list[tuple[str, str]]) -> None:
    assert check(options) == faults


def test_the_golden_flows_are_scripts() -> None:
    for flow in json.loads((DATA / "flows.json").read_text("utf-8"))["flows"]:
        for stream in flow["streams"]:
            assert check({"streams": [stream]}) == [], flow["name"]
