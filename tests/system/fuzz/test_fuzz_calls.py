"""Whatever a model says as a value or in a call, and whatever a tool answers, the run ends and tells it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from tests.support import chat_wire
from tests.support.acting import rows_of
from tests.support.fuzzed_runs import ends_well, nothing_breaks
from tests.support.fuzzing import bounded, damaged, encoded, json_of, marks, nearly, written
from tests.support.heard import served
from tests.support.model_server import Attempt, ModelServer
from tests.support.service import Service

pytestmark = [pytest.mark.anyio, *marks]

TOOLS = ["add", "echo", "note", "refuse", "nothing"]
LIFECYCLE: dict[str, Any] = {
    "retry": None,
    "timeout": {"initial_token_ms": 30_000, "inter_token_ms": 30_000},
    "max_model_calls": 3,
}
GOOD = Attempt(chat_wire.text("fine"), framing="chunked", then="keep")
FORMAT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0},
        "kind": {"enum": ["a", "b", None]},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
        "any": {"anyOf": [{"type": "string", "pattern": "^[a-z]+$"}, {"type": "object"}, {"type": "null"}]},
    },
    "required": ["n"],
    "$defs": {
        "part": {
            "type": "object",
            "properties": {"parts": {"type": "array", "items": {"$ref": "#/$defs/part"}}},
        }
    },
}
ANSWER: dict[str, Any] = {
    "n": 1,
    "kind": "a",
    "parts": [{"parts": []}, {"parts": [{"parts": []}]}],
    "any": {"x": "y"},
    "reason": {"title": "t", "content": "c", "confidence_score": 0.5},
    "action_required": True,
    "action_requests": [
        {"function": "add", "arguments": {"a": 1, "b": 2}},
        {"function": "echo", "arguments": {"value": {"x": [1, None]}}},
    ],
}
WORDS = st.sampled_from([*ANSWER, *ANSWER["action_requests"][0], *TOOLS, "a", "b", "value", "text", "title"])
anything = json_of(WORDS)

FENCES = [
    "{}",
    "{}",
    "```json\n{}\n```",
    "Here it is:\n{}\nDone.",
    "{} {}",
    "```\n{}",
    "<think>{}</think>{}",
    "\ufeff{}",
]
HARD = [
    *(b"[" * 30_000, b'{"n":' * 9_000, b"{" * 9_000 + b"}" * 9_000, b"'" * 5_000, b"```json\n" * 900),
    *(b'{"n": 1, "any": "' + b"\\" * 20_001, b'{"a": "\\u00', b"{'n': 'it's'}" * 500, b"{,}" * 3_000),
    *(
        b'{"n": ' + b"1" * 9_000 + b"}",
        b'{"n": 1}' * 3_000,
        b'"' + b"[{" * 20_000,
        b'{"n": 1,,}' + b" " * 90_000,
    ),
]
near_values = nearly(ANSWER, anything).map(encoded)
texts = st.builds(
    lambda fence, raw: fence.replace("{}", raw.decode("utf-8", "replace")),
    st.sampled_from(FENCES),
    st.one_of(
        near_values,
        near_values.flatmap(damaged),
        anything.map(encoded),
        st.text(max_size=100).map(str.encode),
        st.binary(max_size=200),
        st.sampled_from(HARD),
    ),
)
"""What a model may say where a value is expected."""


@st.composite
def fragments(draw: st.DrawFn, text: str) -> list[str]:
    """The text in a few pieces."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


split_texts = texts.flatmap(fragments)


@bounded
@given(
    pieces=split_texts,
    finish=st.sampled_from(["stop", "length", "tool_calls", None]),
    more=st.fixed_dictionaries(
        {},
        optional={
            "actions": st.just(True),
            "reason": st.just(True),
            "response_format": st.just(FORMAT),
            "handle_validation": st.sampled_from(["return_value", "return_none"]),
            "validate": st.booleans(),
            "action_strategy": st.just("sequential"),
            "dedupe_actions": st.just(True),
        },
    ),
)
async def test_a_value(
    service: Service, model_server: ModelServer, pieces: list[str], finish: str | None, more: dict[str, Any]
) -> None:
    note(f"{pieces} {finish} {more}")
    said = [chat_wire.delta({"content": piece}) for piece in pieces]
    answer = Attempt([*said, chat_wire.delta({}, finish), chat_wire.DONE], framing="chunked", then="keep")
    model = await served(service, model_server, [answer, GOOD])
    branch = await service.branch(chat_model=model, tools=TOOLS)
    with nothing_breaks():
        await ends_well(service, await service.operate(branch, lifecycle=LIFECYCLE, tools=TOOLS, **more))
        await next_is_fine(service, model_server, model, branch)


async def next_is_fine(service: Service, server: ModelServer, model: str, branch: str) -> None:
    """The conversation can be gone on with."""
    server.scripts[model] = [GOOD]
    after = await service.operate(branch, lifecycle=LIFECYCLE)
    assert (after["status"], after["result"]) == ("completed", "fine")


calls = st.lists(
    st.tuples(
        st.sampled_from(TOOLS) | st.text(max_size=5),
        st.sampled_from(["c1", "c2", "", "\0", "x" * 300]),
        split_texts,
    ),
    min_size=1,
    max_size=3,
)


@bounded
@given(calls=calls, finish=st.sampled_from(["stop", "tool_calls", "length"]), dedupe=st.booleans())
async def test_arguments(
    service: Service,
    model_server: ModelServer,
    calls: list[tuple[str, str, list[str]]],
    finish: str,
    dedupe: bool,
) -> None:
    note(repr(calls))
    said = []
    for index, (name, id, pieces) in enumerate(calls):
        begun = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
        said.append(chat_wire.delta({"tool_calls": [begun]}))
        said += [
            chat_wire.delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            for piece in pieces
        ]
    answer = Attempt([*said, chat_wire.delta({}, finish), chat_wire.DONE], framing="chunked", then="keep")
    model = await served(service, model_server, [answer, GOOD])
    branch = await service.branch(chat_model=model)
    with nothing_breaks():
        run = await service.operate(
            branch, lifecycle=LIFECYCLE, actions=True, tools=TOOLS, dedupe_actions=dedupe
        )
        await ends_well(service, run)
        await every_call_ended(service, run)
        await next_is_fine(service, model_server, model, branch)


async def every_call_ended(service: Service, run: dict[str, Any]) -> None:
    """None is left open."""
    rows = await rows_of(service, run["id"])
    assert {row["status"] for row in rows} <= {"completed", "failed", "denied", "cancelled", "skipped"}


requests = st.one_of(
    nearly(ANSWER["action_requests"], anything),
    st.lists(st.fixed_dictionaries({"function": st.sampled_from(TOOLS), "arguments": anything}), max_size=3),
    anything,
)


@bounded
@given(requests=requests, strategy=st.sampled_from(["concurrent", "sequential"]))
async def test_requests_of_a_client(service: Service, requests: Any, strategy: str) -> None:
    note(repr(requests))
    branch = await service.branch()
    body = json.dumps({"strategy": strategy, "requests": "<>"}).replace('"<>"', written(requests))
    with nothing_breaks():
        answer = await service.http.post(
            f"/v1/branches/{branch}/act",
            content=body.encode("utf-8", "surrogatepass"),
            headers={"Content-Type": "application/json"},
        )
        event(f"act: {answer.status_code}")
        if answer.status_code != 200:
            assert answer.status_code in (400, 422), answer.text
            assert answer.json()["code"]
            return
        await ends_well(service, answer.json())
        await every_call_ended(service, answer.json())


answers = st.builds(
    Attempt,
    st.lists(
        near_values | near_values.flatmap(damaged) | anything.map(encoded) | st.binary(max_size=99),
        max_size=2,
    ),
    status=st.just(200)
    | st.sampled_from([200, 201, 202, 204, 205, 206, 301, 303, 304, 400, 404, 429, 500, 503, 999]),
    content_type=st.sampled_from(
        [None, "application/json", "text/plain; charset=x", "text/event-stream", "image/png"]
    ),
    headers=st.dictionaries(
        st.sampled_from(["Retry-After", "Location", "Content-Encoding", "Set-Cookie", "Content-Length"]),
        st.sampled_from(
            ["0", "1", "-1", "nan", "http://127.0.0.1:9/", "//", "gzip", "br", "\xff", "x" * 9_000]
        ),
        max_size=2,
    ),
    then=st.sampled_from(["close", "close", "reset", "hang"]),
    framing=st.sampled_from(["eof", "chunked", "length"]),
    cut=st.booleans(),
    head=st.none() | st.none() | st.binary(max_size=60),
)


@bounded
@given(answer=answers, idempotent=st.booleans())
async def test_an_answer_of_a_tool_over_http(
    service: Service, model_server: ModelServer, answer: Attempt, idempotent: bool
) -> None:
    note(repr(answer))
    model_server.scripts[""] = [answer]
    limits = {"connect": 500, "first_byte": 300, "total": 600}
    tool = {
        "kind": "http",
        "parameters": {"type": "object"},
        "idempotent": idempotent,
        "http": {"url": model_server.base_url, "timeout_ms": limits, "tries": 2},
    }
    put = await service.http.put("/v1/tools/answering", json=tool)
    assert put.status_code < 300, put.text
    asking = chat_wire.attempt(
        [
            {"tool_call": {"index": 0, "id": "c", "name": "answering", "arguments": "{}"}},
            {"end": "tool_calls"},
        ]
    )
    model = await served(service, model_server, [asking, GOOD])
    branch = await service.branch(chat_model=model)
    with nothing_breaks():
        run = await service.operate(branch, lifecycle=LIFECYCLE, actions=True, tools=["answering"])
        assert run["status"] == "completed"
        await ends_well(service, run)
        await every_call_ended(service, run)
        await next_is_fine(service, model_server, model, branch)
