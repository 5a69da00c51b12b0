"""Further views of a log: callbacks, second names of types, the text of a stream, the catalogue of types."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from app.core.events import event_types
from app.core.events.structured import ALIASES
from tests.support.flows import FLOWS
from tests.support.service import Frame, Service, text_by_offset

pytestmark = pytest.mark.anyio

Script = list[dict[str, Any]]

CALL: Script = [
    {"text": "Adding. "},
    {"tool_call": {"index": 0, "id": "call_1", "name": "add", "arguments": '{"a": 1, "b": 2}'}},
    {"end": "tool_calls"},
]
BROKEN: Script = [{"text": "Half an 🦦"}, {"error": {"kind": "network"}}]
WHOLE: Script = [{"text": "A whole "}, {"text": "🦦."}, {"end": "stop"}]
QUICKLY = {"retry": {"base_delay_ms": 0, "max_delay_ms": 0}}
ON_EVENT = {"on_token": "token", "on_tool_call": "tool_call", "on_complete": "complete"}


async def run_of(service: Service, name: str, *attempts: Script, **body: Any) -> dict[str, Any]:
    """A run at its end."""
    branch = await service.branch(chat_model=await service.scripted(name, *attempts))
    return await service.operate(branch, lifecycle=QUICKLY, **body)


def callbacks_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the view has to show, worked out from the events."""
    out = []
    for event in events:
        fired = [*event["callbacks"]]
        if event["type"] == "TOKEN":
            fired = [{"name": "on_token", "args": [event["meta"]["text"]]}]
        place = {name: event[name] for name in event if name not in ("type", "meta", "callbacks")}
        for callback in fired:
            out.append({**place, **callback})
            if (kind := ON_EVENT.get(callback["name"])) is not None:
                out.append({**place, "name": "on_event", "args": [{"type": kind, **event["meta"]}]})
    return out


@pytest.mark.parametrize("limit", [1, 4, 1000])
async def test_callbacks_in_pages(service: Service, limit: int) -> None:
    run = await run_of(service, "calling", CALL)
    events = await service.events(run["id"])
    expected = callbacks_of(events)
    assert {"on_start", "on_token", "on_event", "on_tool_call", "on_complete"} <= {
        c["name"] for c in expected
    }
    found, after, pages = [], "0", 0
    while after is not None:
        page = await service.get(f"/v1/runs/{run['id']}/events?view=callbacks&limit={limit}&after={after}")
        pages += 1
        assert page["has_more"] == (page["next"] is not None)
        part = [c for c in expected if int(after) < c["seq"] <= int(after) + limit]
        assert page["data"] == part
        found += part
        after = page["next"]
    assert found == expected
    assert pages == -(-len(events) // limit)


async def test_callbacks_as_a_stream(service: Service) -> None:
    run = await run_of(service, "calling", CALL)
    expected = callbacks_of(await service.events(run["id"]))
    path = f"/v1/runs/{run['id']}/events?view=callbacks"
    *frames, end = [frame async for frame in service.stream("GET", path)]
    assert [frame.data for frame in frames] == expected
    assert [frame.event for frame in frames] == [item["name"] for item in expected]
    following = [item["seq"] for item in expected[1:]] + [0]
    ids = [
        f"{run['id']}:{item['seq']}" if item["seq"] != seq else None
        for item, seq in zip(expected, following, strict=True)
    ]
    assert [frame.id for frame in frames] == ids
    assert end == Frame(f"{run['id']}:{run['last_seq']}", "stream.end", {})
    for at, id_ in enumerate(ids):
        if id_ is not None:
            rest = [f async for f in service.stream("GET", path, headers={"Last-Event-ID": id_})]
            assert [frame.data for frame in rest[:-1]] == expected[at + 1 :]
    again = await service.http.get(
        path, headers={"Accept": "text/event-stream", "Last-Event-ID": end.id or ""}
    )
    assert again.status_code == 204


async def test_callbacks_of_some_types_without_event_lines(service: Service) -> None:
    run = await run_of(service, "calling", CALL)
    path = f"/v1/runs/{run['id']}/events?view=callbacks&types=COMPLETE,RUN_COMPLETED&framing=message"
    expected = [c for c in callbacks_of(await service.events(run["id"])) if "complete" in str(c)]
    frames = [frame async for frame in service.stream("GET", path)]
    assert [frame.data for frame in frames[:-1]] == expected
    assert [item["name"] for item in expected] == ["on_complete", "on_event"]
    assert {frame.event for frame in frames[:-1]} == {None}
    assert (await service.get(path))["data"] == expected


@pytest.mark.parametrize("name", ["retry", "fallback"])
async def test_callbacks_come_in_the_order_of_the_flows(service: Service, name: str) -> None:
    flow = next(FLOWS[found] for found in FLOWS if name in found)
    names = [f"{flow['name']}-{at}" for at in range(len(flow["streams"]))]
    for model, stream in zip(names, flow["streams"], strict=True):
        await service.scripted(model, *stream["attempts"])
    branch = await service.branch(chat_model=names[0])
    run = await service.operate(branch, lifecycle={**flow["options"], "fallbacks": names[1:]})
    page = await service.get(f"/v1/runs/{run['id']}/events?view=callbacks&limit=1000")
    wanted = [line[0].removeprefix("->") for line in flow["expect"] if line[0].startswith("->")]
    assert [item["name"] for item in page["data"] if item["name"] != "on_event"] == wanted


async def test_second_names_of_types(service: Service) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    run = await run_of(service, "fenced", [{"text": '{"n": 7,}'}, {"end": "stop"}], response_format=schema)
    assert run["result"] == {"n": 7}
    events = await service.events(run["id"])
    renamed = [{**event, "type": ALIASES.get(event["type"], event["type"])} for event in events]
    shown = {event["type"] for event in renamed if event["type"].startswith("STRUCTURED_")}
    assert {"STRUCTURED_PARSE_START", "STRUCTURED_VALIDATION_END", "STRUCTURED_AUTO_CORRECT_END"} <= shown
    path = f"/v1/runs/{run['id']}/events?aliases=structured"
    assert (await service.get(f"{path}&limit=1000"))["data"] == renamed
    *frames, _ = [frame async for frame in service.stream("GET", path)]
    assert [(frame.event, frame.data) for frame in frames] == [(event["type"], event) for event in renamed]
    for types in ("PARSE_START,STRUCTURED_VALIDATION_END", "STRUCTURED_PARSE_START,SCHEMA_VALIDATION_END"):
        chosen = (await service.get(f"{path}&types={types}"))["data"]
        assert [event["type"] for event in chosen] == ["STRUCTURED_PARSE_START", "STRUCTURED_VALIDATION_END"]
    assert await service.events(run["id"]) == events


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("events?types=STRUCTURED_PARSE_START", "types"),
        ("events?aliases=all", "aliases"),
        ("events?view=everything", "view"),
        ("text?to_seq=0", "to_seq"),
        ("text?to_seq=99999999999", "to_seq"),
        ("text?to_seq=9999", "to_seq"),
        ("text?stream_id=main", "stream_id"),
        ("text?from_seq=1", "from_seq"),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(service: Service, query: str, parameter: str) -> None:
    run = await run_of(service, "whole", WHOLE)
    answer = await service.http.get(f"/v1/runs/{run['id']}/{query}")
    assert answer.status_code == 422
    assert [error["parameter"] for error in answer.json()["errors"]] == [parameter]


async def test_the_text_of_a_run_that_began_anew(service: Service) -> None:
    run = await run_of(service, "flaky", BROKEN, WHOLE)
    events = await service.events(run["id"])
    begins = next(event["seq"] for event in events if event["type"] == "SESSION_START")
    texts = []
    for seq in range(1, run["last_seq"] + 1):
        found = await service.get(f"/v1/runs/{run['id']}/text?to_seq={seq}")
        assert found["text"] == ("" if seq < begins else text_by_offset(events[:seq]))
        assert found["length"] == len(found["text"])
        texts.append(found["text"])
    assert list(dict.fromkeys(texts)) == ["", "Half an 🦦", "A whole ", "A whole 🦦."]


async def test_the_text_of_a_run_that_failed(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("broken", BROKEN))
    run = await service.operate(branch, lifecycle={"retry": None})
    assert run["status"] == "failed"
    text = await service.get(f"/v1/runs/{run['id']}/text")
    assert (text["text"], text["length"], text["to_seq"]) == ("Half an 🦦", 9, run["last_seq"])


async def test_the_text_of_what_is_not_there(service: Service) -> None:
    acted = await service.act(await service.branch(), {"function": "add", "arguments": {"a": 1, "b": 2}})
    assert (await service.get(f"/v1/runs/{acted['id']}/text"))["text"] == ""
    answer = await service.http.get(f"/v1/runs/{acted['id']}/text?stream_id={uuid4()}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert answer.json()["errors"][0]["parameter"] == "stream_id"
    assert (await service.http.get(f"/v1/runs/{uuid4()}/text")).status_code == 404


async def test_every_type_is_in_the_catalogue(service: Service) -> None:
    found = {entry["type"]: entry for entry in (await service.get("/v1/event-types"))["data"]}
    assert found.keys() == event_types().keys()
    assert {name: entry["code"] for name, entry in found.items()} == {
        name: kind.code for name, kind in event_types().items()
    }
    assert {name: entry["aliases"][0] for name, entry in found.items() if entry["aliases"]} == ALIASES
    assert all(entry["description"] for entry in found.values())
    checkpoint = found["CHECKPOINT_SAVED"]
    assert [field["name"] for field in checkpoint["fields"]] == ["checkpoint", "tokenCount"]


async def test_the_catalogue_knows_which_types_belong_to_streams(service: Service) -> None:
    found = {entry["type"]: entry for entry in (await service.get("/v1/event-types"))["data"]}
    seen = set()
    for run in (
        await run_of(service, "calling", CALL, actions=True),
        await run_of(service, "flaky", BROKEN, WHOLE, response_format={"type": "string"}),
    ):
        for event in await service.events(run["id"]):
            seen.add(event["type"])
            assert found[event["type"]]["per_stream"] == (event["stream_id"] is not None), event["type"]
    assert {"TOOL_REQUESTED", "TOOL_RESULT", "PARSE_START", "RESULT_VALIDATED", "RUN_COMPLETED"} <= seen
