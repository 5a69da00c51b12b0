"""An import takes nothing that is broken, and never reaches another project."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import asyncpg
import orjson
import pytest

from tests.support.clients import Clients, refusal
from tests.support.database import migrated
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running
from tests.support.transfer import NDJSON, all_of, exported, file_of, sent

pytestmark = pytest.mark.anyio

OPERATOR = "the operator's key of the tests"
Lines = list[dict[str, Any]]

TABLES = (
    *("projects", "branches", "messages", "runs", "function_calls", "approvals", "client_calls", "attempts"),
    *("events", "token_blocks"),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """A project with a history, and the key of another project of the same installation."""

    service: Service
    """With the other's key."""
    lines: Lines
    """The export of a branch of the first, which has one of everything."""
    url: str

    async def rows(self) -> list[int]:
        """How much there is of everything, whoever owns it."""
        connection = await asyncpg.connect(self.url)
        try:
            return [await connection.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES]
        finally:
            await connection.close()


@pytest.fixture(scope="module")
async def stage(postgres: PostgresServer) -> AsyncIterator[Stage]:
    limits = {"import_line_bytes": 65_536, "import_bytes": 1_000_000}
    async with migrated(postgres) as url, running(url, bootstrap_key=OPERATOR, **limits) as service:
        service.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        home = (await service.get("/v1/projects"))["data"][0]["id"]
        key = await _key(service, home, "read", "run", "approve", "admin")
        service.http.headers["Authorization"] = f"Bearer {key}"
        await service.scripted("m", [{"text": "hello "}, {"text": "world"}, {"end": "stop"}])
        branch = await service.branch(chat_model="m", system="Be brief.", gate={"default": "escalate"})
        await service.operate(branch)
        clients = Clients(service.http)
        asked = await clients.waiting(branch, {"function": await clients.tool("door"), "arguments": {"n": 1}})
        service.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        (approval,) = (await service.get("/v1/approvals"))["data"]
        path = f"/v1/function-calls/{approval['function_call_id']}/decision"
        assert (await service.http.post(path, json={"decision": "approve"})).status_code == 200
        await clients.brought(await clients.next_of(asked["id"], 0), None)
        await service.ended(asked["id"])
        lines = await exported(service, f"/v1/branches/{branch}")
        assert {line["object"] for line in lines} >= {"message", "run", "function_call", "approval"}
        assert {line["object"] for line in lines} >= {"client_call", "attempt", "event", "tokens"}
        other = (await service.http.post("/v1/projects", json={"name": "other"})).json()["id"]
        foreign = await _key(service, other, "read", "run", "admin")
        service.http.headers["Authorization"] = f"Bearer {foreign}"
        yield Stage(service, lines, url)


async def _key(service: Service, project: str, *scopes: str) -> str:
    body = {"name": "k", "scopes": scopes}
    return str((await service.http.post(f"/v1/projects/{project}/keys", json=body)).json()["key"])


def renamed(lines: Lines) -> Lines:
    """The same history under ids that nobody has."""
    text = file_of(lines).decode()
    for line in lines:
        for name in ("id", "call_id"):
            if line.get(name) and line["object"] != "export":
                fresh = uuid4().hex
                old = line[name]
                # Runs keep their time, and what makes a UUIDv7 of them.
                text = text.replace(old, f"{old[:19]}{old[19:20]}{fresh[:3]}-{fresh[3:15]}")
    return [orjson.loads(one) for one in text.splitlines()]


def first(lines: Lines, kind: str) -> dict[str, Any]:
    return next(line for line in lines if line["object"] == kind)


async def test_the_same_history_under_other_ids_is_taken(stage: Stage) -> None:
    """What the others here refuse, they refuse for what each of them changes."""
    answer = await sent(stage.service, file_of(renamed(stage.lines)))
    assert answer.status_code == 200, answer.text
    assert answer.json()["branches"] == 1


async def test_ids_of_another_project_are_refused(stage: Stage) -> None:
    before = await stage.rows()
    answer = await sent(stage.service, file_of(stage.lines))
    assert refusal(answer) == (409, "id_taken")
    assert await stage.rows() == before
    for kind in ("message", "run", "function_call", "approval"):
        lines = renamed(stage.lines)
        text = file_of(lines).decode().replace(first(lines, kind)["id"], first(stage.lines, kind)["id"])
        answer = await sent(stage.service, text.encode())
        assert refusal(answer) == (409, "id_taken"), kind
        assert await stage.rows() == before


async def test_a_run_or_a_parent_of_another_project_cannot_be_named(stage: Stage) -> None:
    before = await stage.rows()
    lines = renamed(stage.lines)
    first(lines, "message")["run_id"] = first(stage.lines, "run")["id"]
    assert refusal(await sent(stage.service, file_of(lines))) == (409, "id_taken")
    lines = renamed(stage.lines)
    first(lines, "branch")["parent_id"] = first(stage.lines, "branch")["id"]
    assert refusal(await sent(stage.service, file_of(lines))) == (409, "id_taken")
    assert await stage.rows() == before


async def test_what_is_left_of_a_run_of_another_project_is_not_taken_over(stage: Stage) -> None:
    """What its attempts cost stays when a run is removed."""
    lines = renamed(stage.lines)
    run = next(line for line in lines if line["object"] == "run")
    connection = await asyncpg.connect(stage.url)
    try:
        mine = await connection.fetchval(
            "SELECT project_id FROM runs WHERE id = $1", first(stage.lines, "run")["id"]
        )
        await connection.execute(
            "INSERT INTO attempts SELECT $1, stream, fallback_index, attempt, $2, branch_id, purpose, model, "
            "provider, wire_model, outcome, code, input_tokens, output_tokens, cached_input_tokens, "
            "cache_write_tokens, reasoning_tokens, reported, estimated, cost, started_at, ended_at "
            "FROM attempts WHERE run_id = $3",
            run["id"],
            mine,
            first(stage.lines, "run")["id"],
        )
    finally:
        await connection.close()
    before = await stage.rows()
    assert refusal(await sent(stage.service, file_of(lines))) == (409, "id_taken")
    lines.remove(first(lines, "attempt"))
    last(lines, "end")["lines"] -= 1
    assert refusal(await sent(stage.service, file_of(lines))) == (409, "id_taken")
    assert await stage.rows() == before


def last(lines: Lines, kind: str) -> dict[str, Any]:
    return first(lines[::-1], kind)


def _set(kind: str, **values: Any) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        first(lines, kind).update(values)

    return change


def _drop(kind: str) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        lines.remove(first(lines, kind))
        last(lines, "end")["lines"] -= 1

    return change


def _meta(type: str, **meta: Any) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        next(line for line in lines if line.get("type") == type).update(meta=meta)

    return change


def _edited(type: str, **meta: Any) -> Callable[[Lines], None]:
    """The first event of a type with something else in its meta."""

    def change(lines: Lines) -> None:
        next(line for line in lines if line.get("type") == type)["meta"].update(meta)

    return change


def _said(kind: str, **values: Any) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        next(line for line in lines if line.get("kind") == kind).update(values)

    return change


def _content(kind: str, **content: Any) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        next(line for line in lines if line.get("kind") == kind)["content"].update(content)

    return change


def _twice(lines: Lines) -> None:
    lines.insert(3, copy.deepcopy(lines[2]))
    last(lines, "end")["lines"] += 1


SOME = "019a0000-0000-7000-8000-000000000001"
BROKEN: dict[str, Callable[[Lines], None]] = {
    "another format": _set("export", format=2),
    "no header": lambda lines: lines.remove(lines[0]),
    "no branch": _drop("branch"),
    "an unknown member": _set("run", owner=SOME),
    "a project": _set("branch", project_id=SOME),
    "an unknown kind of line": _set("run", object="runs"),
    "a kind that is no text": _set("run", object=["run"]),
    "a gate nobody could set": _set("branch", gate={"rules": [{"when": "((", "effect": "allow"}]}),
    "a gate at a private address": _set("branch", gate={"http": {"url": "http://10.0.0.1/"}}),
    "metadata without end": _set("branch", metadata={"a": "x" * 66_000}),
    "a system text without its message": _set("branch", system="Be long."),
    "a position that is taken": _set("branch", next_position=1),
    "a run that goes on": _set("run", status="running"),
    "a run of no time": _set("run", id=str(uuid4())),
    "a run of the future": _set("run", id="ffffffff-0000-7000-8000-000000000001"),
    "a run of long ago": _set("run", id="00000000-0000-7000-8000-000000000001"),
    "a request that is none": _set("run", request=[]),
    "usage that is none": _set("run", usage={"input_tokens": "many"}),
    "a time without an offset": _set("run", created_at="2026-11-30T12:00:00"),
    "a time as a number": _set("run", created_at=1),
    "a time before all": _set("run", created_at="0001-01-01T00:00:00+14:00"),
    "a number too large": _set("run", attempts=2**31),
    "a response without its request": _drop("message"),
    "a response to nothing": lambda lines: lines.remove(
        next(line for line in lines if line.get("kind") == "action_request")
    ),
    "a response of another kind": _set("message", action_request_id=SOME),
    "a call without its request": _set("function_call", action_request_id=SOME),
    "a call that goes on": _set("function_call", status="processing"),
    "an approval of another call": _set("approval", function_call_id=SOME),
    "an approval that waits": _set("approval", status="pending"),
    "a client call of another call": _set("client_call", function_call_id=SOME),
    "a client call that waits": _set("client_call", status="waiting"),
    "an attempt that has no outcome": _set("attempt", outcome="unknown"),
    "negative usage": _set("attempt", input_tokens=-1),
    "a cost that is no number": _set("attempt", cost="NaN"),
    "a message twice": _twice,
    "an event left out": _drop("event"),
    "tokens left out": _drop("tokens"),
    "an unknown event": _set("event", type="NO_SUCH_TYPE"),
    "a token among events": _set("event", type="TOKEN"),
    "an event of half a stream": _set("event", stream=0),
    "an end before the end": _set("event", type="RUN_COMPLETED"),
    "another end": lambda lines: next(line for line in lines if line.get("type") == "RUN_COMPLETED").update(
        type="RUN_FAILED"
    ),
    "a beginning that is no number": _edited("RUN_STARTED", position="0"),
    "a beginning that is no place": _edited("RUN_STARTED", position=2**31),
    "a beginning before all": _edited("RUN_STARTED", position=-1),
    "a call that is done and has no id": _edited("TOOL_COMPLETED", callId="x"),
    "a call whose id is no text": _edited("TOOL_COMPLETED", callId=[]),
    "half of an action that does not count": _said("action_request", superseded=True),
    "a system text that does not count": _said("system", superseded=True),
    "nobody's message that does not count": _said("instruction", superseded=True, run_id=None),
    "an instruction before all": lambda lines: (
        _drop("message")(lines),
        _set("branch", system=None)(lines),
        _said("instruction", position=-1)(lines),
    )[0],
    "an end that says nothing": _meta("RUN_COMPLETED"),
    "a start that says nothing": _meta("SESSION_START"),
    "a callback that is none": _set("event", callbacks=[{"name": "on_token", "args": []}]),
    "tokens without delays": _set("tokens", delays=[]),
    "tokens that are none": _set("tokens", texts=[], delays=[]),
    "tokens without end": _set("tokens", texts=["a"] * 257, delays=[0] * 257),
    "an answer that is no text": _content("assistant_response", text=5),
    "an answer with calls that are none": _content("assistant_response", tool_calls=[5]),
    "a message that says more": _content("instruction", more=1),
    "images that are none": _content("instruction", images=7),
    "a response to another request": _content("action_response", action_request_id=SOME),
    "lines that are missing": _set("end", lines=3),
    "sections that are missing": _set("export_end", sections=2),
    "a NUL": _set("branch", name="\0"),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_what_is_broken_is_refused_whole(stage: Stage, what: str) -> None:
    before = await stage.rows()
    lines = renamed(stage.lines)
    BROKEN[what](lines)
    answer = await sent(stage.service, file_of(lines))
    assert refusal(answer) == (422, "import_refused"), answer.text
    problem = answer.json()
    assert f"Line {problem['line']} " in problem["detail"]
    assert problem["errors"][0]["pointer"].startswith(f"/{problem['line']}")
    taken = 1 if what == "sections that are missing" else 0
    assert problem["imported"]["branches"] == taken
    if not taken:
        assert await stage.rows() == before


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "cut off"),
        (b"\n", "Line 1"),
        (b"[]\n", "`object` is one of"),
        (b'{"object":"export"\n', "Line 1"),
        (b'{"object":"export","object":"export"}\n', "stands twice"),
        (b"[" * 20_000, "Line 1"),
        (b'{"object":"' + b"x" * 70_000, "more than 65536 bytes"),
        (b"\xff\xfe\n", "Line 1"),
    ],
)
async def test_what_is_no_export_is_refused(stage: Stage, body: bytes, words: str) -> None:
    answer = await sent(stage.service, body)
    assert refusal(answer) == (422, "import_refused")
    assert words in answer.json()["detail"]


async def test_bounds_and_media_types_are_kept(stage: Stage) -> None:
    http = stage.service.http
    large = await http.post("/v1/import", content=b"x" * 1_000_001, headers=NDJSON)
    assert refusal(large) == (413, "body_too_large")
    assert refusal(await http.post("/v1/import", json={})) == (415, "unsupported_media_type")
    connection = await asyncpg.connect(stage.url)
    weeks = await connection.fetchval("SELECT count(*) FROM pg_inherits")
    await connection.close()
    assert weeks < 100


async def test_only_admins_carry_histories(stage: Stage) -> None:
    service = stage.service
    mine = service.http.headers["Authorization"]
    branch = (await all_of(service, "/v1/branches"))[0]["id"]
    try:
        service.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        other = (await service.get("/v1/projects"))["data"][0]["id"]
        key = await _key(service, other, "read", "run")
        service.http.headers["Authorization"] = f"Bearer {key}"
        for method, path in (
            ("GET", f"/v1/branches/{branch}/export"),
            ("GET", f"/v1/projects/{other}/export"),
            ("POST", f"/v1/branches/{branch}/purge"),
            ("POST", "/v1/import"),
        ):
            answer = await service.http.request(method, path)
            assert refusal(answer) == (403, "forbidden"), path
        hold = await service.http.patch(f"/v1/branches/{branch}", json={"legal_hold": True})
        assert refusal(hold) == (403, "forbidden")
    finally:
        service.http.headers["Authorization"] = mine
