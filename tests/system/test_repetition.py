"""Whatever a model says, and however it fails: the same script makes the same run."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import chat_wire
from tests.support.heard import Heard, hear, served
from tests.support.model_server import ModelServer
from tests.support.service import Service

pytestmark = pytest.mark.anyio

Steps = list[dict[str, Any]]

_numbers = count(1)
_MADE_UP = re.compile(r"call_[0-9a-f]{13}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIMED = frozenset({"ts", "startTs", "endTs", "duration", "durationMs", "created_at"})

# Without NUL, which no request body may hold.
CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
texts = st.text(CHARACTERS, max_size=6) | st.sampled_from(
    ["a", " ", "\n", "é", "日本", "🦦", "\u2028", "data: [DONE]\n\n"]
)
usages = st.builds(
    lambda sent, made: {"usage": {"input_tokens": sent, "output_tokens": made}},
    st.integers(0, 2**31),
    st.integers(0, 2**31),
)
pieces = st.one_of(
    texts.map(lambda text: {"text": text}),
    texts.map(lambda text: {"text": text}),
    texts.map(lambda text: {"reasoning": text}),
    usages,
)
REFUSAL: Steps = [{"refusal": "I will"}, {"refusal": " not."}]
errors = st.sampled_from(
    [
        {"kind": "network", "type": "connection_reset"},
        {"kind": "status", "status": 401},
        {"kind": "status", "status": 503},
        {"kind": "in_stream", "type": "overloaded_error"},
        {"kind": "in_stream", "message": "boom", "code": "c"},
        {"kind": "malformed"},
        {"kind": "tls"},
    ]
).map(lambda error: {"error": error})
ends = st.sampled_from(["stop", "tool_calls", "odd", None] * 3 + ["length", "content_filter"]).map(
    lambda reason: {"end": reason}
)
arguments = st.sampled_from(
    ["", "{}", '{"a": 1, "b": 2}', '{"a": "é\\u0000"}'] * 3 + ["[1]", '{"a": ', '{"a": 1} {"b": 2}']
)


@st.composite
def calls(draw: st.DrawFn) -> Steps:
    """Up to two tool calls, their arguments cut anywhere and in turn."""
    rows: list[Steps] = []
    for index in range(draw(st.integers(0, 2))):
        whole = draw(arguments)
        cut = draw(st.integers(0, len(whole)))
        first = {"index": index, "id": draw(st.sampled_from([f"c{index}", None])), "name": "add"}
        rows.append(
            [
                {"tool_call": {**first, "arguments": whole[:cut]}},
                {"tool_call": {"index": index, "arguments": whole[cut:]}},
            ]
        )
    return [step for row in (zip(*rows, strict=True) if draw(st.booleans()) else rows) for step in row]


@st.composite
def attempts(draw: st.DrawFn, *, fail: bool) -> Steps:
    """What a model yields at one opening; a list without an end is a cut stream."""
    steps = draw(st.lists(pieces, max_size=6)) + (REFUSAL if draw(st.integers(0, 15)) == 7 else [])
    steps += draw(calls())
    if fail and draw(st.integers(0, 2)) == 1:
        return [*steps[: draw(st.integers(0, len(steps)))], draw(errors)]
    return steps + ([] if draw(st.integers(0, 7)) == 3 else [draw(ends)])


options = st.fixed_dictionaries(
    {
        "timeout": st.none() | st.just({}),
        "retry": st.none() | st.just({"attempts": 1, "max_retries": 2, "base_delay_ms": 0}),
        "detect_zero_tokens": st.booleans(),
        "events": st.sampled_from(["standard", "full"]),
    }
)


async def play(service: Service, scripts: list[list[Steps]], lifecycle: dict[str, Any], **body: Any) -> Heard:
    """Run a script on models registered for it."""
    number = next(_numbers)
    names = [f"m{number}-{at}" for at in range(len(scripts))]
    for name, script in zip(names, scripts, strict=True):
        await service.scripted(name, *script)
    return await hear(service, names[0], lifecycle={**lifecycle, "fallbacks": names[1:]}, **body)


def same(heard: Heard) -> Any:
    """Everything about a run but its ids, its times and the names of its models."""
    run = {
        key: heard.run[key]
        for key in ("status", "result", "error", "finish_reason", "finish_reason_raw", "partial_text")
    }
    counts = [heard.run[key] for key in ("usage", "attempts", "fallback_index", "last_seq", "validation")]
    messages = [[m["kind"], m["sender"] == "user", m["content"]] for m in heard.messages]
    events = [[e["type"], e["attempt"], e["fallback_index"], e["meta"], e["callbacks"]] for e in heard.events]
    text = json.dumps(_untimed([run, counts, messages, events]), sort_keys=True)
    return json.loads(_MADE_UP.sub("#", text))


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _untimed(member) for key, member in value.items() if key not in _TIMED}
    return [_untimed(member) for member in value] if isinstance(value, list) else value


def check(heard: Heard) -> None:
    """What holds for every run."""
    run = heard.run
    assert [event["seq"] for event in heard.events] == list(range(1, run["last_seq"] + 1))
    assert [kind for kind in heard.types if kind in ("RUN_COMPLETED", "RUN_FAILED")] == heard.types[-1:]
    assert heard.types.count("COMPLETE") == (run["status"] == "completed")
    assert (run["error"] is None) == (run["status"] == "completed")
    if run["status"] == "completed":
        answer = heard.answer
        assert answer is not None
        assert answer["text"] == heard.text
        assert [(c["id"], c["name"], c["arguments"]) for c in answer["tool_calls"]] == heard.calls
        assert [m["kind"] for m in heard.messages[:2]] == ["instruction", "assistant_response"]
    else:
        assert heard.messages == []
        assert run["function_calls"] == []
        assert (run["result"], run["partial_text"]) == (None, heard.text or None)


@settings(max_examples=30)
@given(
    scripts=st.lists(st.lists(attempts(fail=True), min_size=1, max_size=3), min_size=1, max_size=2),
    lifecycle=options,
    actions=st.booleans(),
)
async def test_a_script_is_one_run_however_often_it_is_played(
    service: Service, scripts: list[list[Steps]], lifecycle: dict[str, Any], actions: bool
) -> None:
    first, second = await asyncio.gather(
        *(play(service, scripts, lifecycle, actions=actions) for _ in range(2))
    )
    check(first)
    assert same(first) == same(second)


@settings(max_examples=30)
@given(steps=attempts(fail=False), lifecycle=options)
async def test_a_script_is_the_same_run_when_a_server_plays_it(
    service: Service, model_server: ModelServer, steps: Steps, lifecycle: dict[str, Any]
) -> None:
    lifecycle = {**lifecycle, "retry": None}
    model = await served(service, model_server, [chat_wire.attempt(steps)])
    scripted, wired = await asyncio.gather(
        play(service, [[steps]], lifecycle), hear(service, model, lifecycle={**lifecycle, "fallbacks": []})
    )
    check(wired)
    assert same(scripted) == same(wired)
