"""Partial values over HTTP: live and from the log, resumed anywhere, and true to the result."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.support import chat_wire
from tests.support.heard import served
from tests.support.model_server import Attempt, ModelServer
from tests.support.patching import UNSET, PartialClient
from tests.support.service import Frame, Service

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "kind": {"enum": ["novel", "essay"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "pages": {"type": "integer"},
    },
    "required": ["title"],
    "additionalProperties": False,
}
VALUE = {"title": "The tide, é 🦦", "kind": "novel", "tags": ["sea", "silt"], "pages": 320}
QUICKLY = {"retry": {"base_delay_ms": 0, "max_delay_ms": 0}}

Script = list[dict[str, Any]]


def said(text: str, size: int = 5, end: str | None = "stop") -> Script:
    """The text in tokens."""
    tokens: Script = [{"text": text[at : at + size]} for at in range(0, len(text), size)]
    return [*tokens, {"end": end}] if end else tokens


def client_of(frames: Iterable[Frame]) -> PartialClient:
    """What a client makes of a stream; the names of its frames are those that they say themselves."""
    client = PartialClient()
    for frame in frames:
        assert frame.event in (frame.data.get("type"), "stream.end")
        client.take(frame.data)
    return client


async def stored(service: Service, run: Mapping[str, Any], **headers: str) -> list[Frame]:
    path = f"/v1/runs/{run['id']}/events?view=partial"
    return [frame async for frame in service.stream("GET", path, headers=headers)]


async def run_of(service: Service, *attempts: Script, **body: Any) -> dict[str, Any]:
    branch = await service.branch(chat_model=await service.scripted("partly", *attempts))
    return await service.operate(branch, **{"response_format": SCHEMA, "lifecycle": QUICKLY, **body})


async def test_a_value_that_is_written_now(service: Service) -> None:
    """Each part is shown before the next one is written."""
    text = json.dumps(VALUE)
    script: Script = []
    for part in (text[:15], text[15:60], text[60:]):
        script += [*said(part, end=None), {"wait_ms": 300}]
    branch = await service.branch(chat_model=await service.scripted("slowly", [*script, {"end": "stop"}]))
    client, known = PartialClient(), []
    path, body = (
        f"/v1/branches/{branch}/operate?view=partial",
        {"instruction": "go", "response_format": SCHEMA},
    )
    async for frame in service.stream("POST", path, json=body):
        client.take(frame.data)
        known.append(copy.deepcopy(client.value))
    assert client.final is not None
    assert client.final["value"] == client.value == VALUE
    assert client.final["continues"] is True
    # Three parts, and then the end twice: of the value, and of the stream.
    assert len(known) >= 5
    assert {"title": "The "} in known
    run = await service.get(f"/v1/runs/{client.final['run_id']}")
    again = client_of(await stored(service, run))
    assert (again.value, again.final) == (client.value, client.final)


async def test_a_stored_value_is_resumed_after_any_event(service: Service) -> None:
    run = await run_of(service, said(json.dumps(VALUE)))
    assert run["result"] == VALUE
    whole = client_of(await stored(service, run))
    assert whole.final is not None
    assert whole.final["value"] == whole.value == VALUE
    for seq in range(1, run["last_seq"]):
        page = await service.get(f"/v1/runs/{run['id']}/events?view=partial&limit={seq}")
        first = PartialClient()
        for data in page["data"]:
            first.take(data)
        for frame in await stored(service, run, **{"Last-Event-ID": f"{run['id']}:{seq}"}):
            first.take(frame.data)
        assert first.final == whole.final
        assert first.value == VALUE


async def test_pages_tell_the_same_as_the_stream(service: Service) -> None:
    run = await run_of(service, said(json.dumps(VALUE)))
    client, after = PartialClient(), "0"
    while after is not None:
        page = await service.get(f"/v1/runs/{run['id']}/events?view=partial&limit=3&after={after}")
        for data in page["data"]:
            client.take(data)
        after = page["next"]
    assert client.final is not None
    assert client.final["value"] == client.value == VALUE


async def test_an_attempt_that_broke_is_taken_back(service: Service) -> None:
    broken = [*said('{"title": "Draft", "pages": 1', end=None), {"error": {"kind": "network"}}]
    run = await run_of(service, broken, said(json.dumps(VALUE)))
    client = client_of(await stored(service, run))
    assert client.resets == [("retry", 2)]
    assert client.final is not None
    assert client.final["value"] == client.value == VALUE


async def test_an_attempt_that_goes_on_keeps_what_was_shown(service: Service) -> None:
    text = json.dumps(VALUE)
    broken = [*said(text[:40], size=1, end=None), {"error": {"kind": "network"}}]
    going_on = {**QUICKLY, "continue_from_last_good_token": True, "check_intervals": {"checkpoint": 1}}
    run = await run_of(service, broken, said(text[40:]), lifecycle=going_on)
    client = client_of(await stored(service, run))
    assert run["result"] == VALUE
    assert [reason for reason, _ in client.resets] == ["retry"]
    assert client.value == VALUE


async def test_a_repair_begins_anew(service: Service) -> None:
    wrong = {**VALUE, "pages": "many"}
    parser = await service.scripted("mends", said(json.dumps(VALUE)))
    run = await run_of(service, said(json.dumps(wrong)), parse_model=parser)
    client = client_of(await stored(service, run))
    assert client.resets == [("repair", 1)]
    assert client.value == run["result"] == VALUE


@pytest.mark.parametrize(
    ("text", "finish", "policy", "shown", "result"),
    [
        ('{"title": "a", "pages": "x"}', "stop", "return_none", {"title": "a"}, None),
        (
            '{"title": "a", "pages": "x"}',
            "stop",
            "return_value",
            {"title": "a"},
            {"title": "a", "pages": "x"},
        ),
        (
            '{"title": "a", "tags": ["b", "c',
            "length",
            "return_none",
            {"title": "a", "tags": ["b", "c"]},
            None,
        ),
        ("Here it is: {'title': 'a'}", "stop", "return_none", UNSET, None),
        ('Sure: {"title": "a"}', "stop", "return_none", UNSET, {"title": "a"}),
        ('```json\n{"title": "a",}\n```', "stop", "return_none", {"title": "a"}, {"title": "a"}),
        ('{"pages": 1}\n{"title": "b"}', "stop", "return_none", {"pages": 1}, {"title": "b"}),
    ],
)
async def test_the_result_is_told_whatever_it_is(
    service: Service, text: str, finish: str, policy: str, shown: Any, result: Any
) -> None:
    run = await run_of(service, said(text, end=finish), handle_validation=policy)
    client = client_of(await stored(service, run))
    assert (client.value, run["result"]) == (shown, result)
    assert client.final is not None
    assert client.final["value"] == result


async def test_a_failed_run_has_its_error(service: Service) -> None:
    broken = [*said('{"title": "Dr', end=None), {"error": {"kind": "network"}}]
    run = await run_of(service, broken, lifecycle={"retry": None})
    final = client_of(await stored(service, run)).final
    assert final is not None
    assert (final["status"], final["value"], final["continues"]) == ("failed", None, False)
    assert final["error"] == run["error"]


async def test_fields_around_the_value_and_what_tools_answered(service: Service) -> None:
    answer = {
        "reason": {"title": "t", "content": "c", "confidence_score": 0.5},
        "value": [1, 2],
        "risk": 3,
        "action_required": True,
        "action_requests": [{"function": "add", "arguments": {"a": 1, "b": 2}}],
        "action_responses": [{"output": "made up"}],
    }
    options = {"native_tools": False, "streams": [{"attempts": [said(json.dumps(answer))]}]}
    await service.model("fielded", provider="scripted", options=options)
    run = await service.operate(
        await service.branch(chat_model="fielded"),
        response_format={"type": "array", "items": {"type": "integer"}},
        field_models=[{"name": "risk", "schema": {"type": "integer"}}],
        reason=True,
        actions=True,
    )
    client = client_of(await stored(service, run))
    del answer["action_responses"]
    assert client.value == answer
    assert client.final is not None
    assert client.final["continues"] is True
    assert client.final["value"] == run["result"]
    assert run["validation"]["corrections"] == ["made_up_responses"]
    assert run["result"]["action_responses"][0]["output"] == 3


@pytest.mark.parametrize(
    "body",
    [{"response_format": None}, {"skip_validation": True}, {"response_format": None, "actions": True}],
)
async def test_a_text_is_told_when_it_is_there(service: Service, body: dict[str, Any]) -> None:
    run = await run_of(service, said("Some words."), **body)
    frames = await stored(service, run)
    assert [frame.event for frame in frames] == ["final", "stream.end"]
    assert frames[0].data["value"] == run["result"] == "Some words."


async def test_runs_of_other_kinds_have_a_result(service: Service) -> None:
    acted = await service.act(await service.branch(), {"function": "add", "arguments": {"a": 1, "b": 2}})
    name = await service.scripted("votes", said(json.dumps(VALUE)))
    decided = await service.consensus([name, name], response_format=SCHEMA)
    for run in (acted, decided):
        (final, _) = await stored(service, run)
        assert final.data["value"] == run["result"]


async def test_frames_without_event_lines(service: Service) -> None:
    run = await run_of(service, said(json.dumps(VALUE)))
    path = f"/v1/runs/{run['id']}/events?view=partial&framing=message"
    *frames, _ = [frame async for frame in service.stream("GET", path)]
    assert {frame.event for frame in frames} == {None}
    assert frames[-1].data["type"] == "final"


@pytest.mark.parametrize("query", ["types=TOKEN", "aliases=structured", "nonsense=1"])
async def test_what_makes_no_sense_is_refused_before_a_run_is_made(service: Service, query: str) -> None:
    branch = await service.branch(chat_model=await service.scripted("any", said("{}")))
    answer = await service.http.post(
        f"/v1/branches/{branch}/operate?view=partial&{query}", json={"instruction": "go"}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == query.split("=")[0]
    assert (await service.get(f"/v1/branches/{branch}/runs"))["data"] == []


async def test_an_answer_of_a_real_wire(service: Service, model_server: ModelServer) -> None:
    text = f"Sure!\n```json\n{json.dumps(VALUE, indent=2)}\n```\nDone."
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    model = await served(service, model_server, [Attempt(chat_wire.text(*pieces), write_size=7)])
    run = await service.operate(await service.branch(chat_model=model), response_format=SCHEMA)
    client = client_of(await stored(service, run))
    assert client.value == run["result"] == VALUE
