"""A run at any moment, and forks of it, against what was stored when that moment was committed."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from random import Random
from typing import Any

import asyncpg
import pytest

from app.adapters.db.engine import driver_arguments
from tests.support.moments import Noted, notes_of, take_notes
from tests.support.polling import until_true
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

_numbers = itertools.count()

OPEN = ("pending", "processing")
GATE = {
    "rules": [
        {"when": "function == 'note'", "effect": "escalate"},
        {"when": "function == 'nothing'", "effect": "deny", "reason": "not today"},
    ]
}


class World:
    """A service whose every commit is noted."""

    def __init__(self, service: Service, connection: asyncpg.Connection[Any]) -> None:
        self.service = service
        self.connection = connection

    async def notes(self, run_id: str) -> list[Noted]:
        return await notes_of(self.connection, run_id)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with running(database_url) as service:
        connection = await asyncpg.connect(**driver_arguments(database_url))
        await take_notes(connection)
        yield World(service, connection)
        await connection.close()


def call(chance: Random, index: int) -> dict[str, Any]:
    """One that ends well, ill, late, after tries, not at all without a person, or is denied."""
    key = f"moment-{next(_numbers)}"
    name, arguments = chance.choice(
        [
            ("add", {"a": index, "b": 2}),
            ("refuse", {"why": key}),
            ("later", {"seconds": 0.02 * chance.randrange(3), "value": key}),
            ("steady", {"key": key, "failures": 1}),
            ("note", {"text": key}),
            ("nothing", {}),
            ("unknown", {}),
        ]
    )
    return {"function": name, "arguments": arguments}


def script(chance: Random, calls: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Attempts at an answer, of which the last one asks for the calls."""
    broken: list[list[dict[str, Any]]] = [
        [{"text": "half "}, {"wait_ms": 20}, {"text": "an answer"}, {"error": {"kind": "network"}}],
        [{"end": "stop"}],
    ]
    asked: list[dict[str, Any]] = [
        {
            "tool_call": {
                "index": index,
                "id": chance.choice(["same", f"c{index}"]),
                "name": one["function"],
                "arguments": json.dumps(one["arguments"]),
            }
        }
        for index, one in enumerate(calls)
    ]
    whole: list[dict[str, Any]] = [
        {"text": "I "},
        {"wait_ms": 10},
        {"text": "act."},
        *asked,
        {"end": "tool_calls"},
    ]
    return [*chance.sample(broken, chance.randrange(3)), whole]


async def begin(world: World, chance: Random, branch: str) -> dict[str, Any]:
    """A run of some kind."""
    calls = [call(chance, index) for index in range(chance.randrange(4))]
    params = {"retry_attempts": 2, "retry_initial_delay": 0.01}
    how = chance.choice(["concurrent", "sequential"])
    if calls and chance.random() < 0.3:
        body: dict[str, Any] = {"requests": calls, "strategy": how, "call_params": params}
        path = f"/v1/branches/{branch}/act"
    else:
        model = await world.service.scripted(f"m{next(_numbers)}", *script(chance, calls))
        retry = {"attempts": chance.choice([0, 3]), "base_delay_ms": 5, "max_delay_ms": 5}
        body = {
            "instruction": f"number {next(_numbers)}",
            "chat_model": model,
            "actions": True,
            "action_strategy": how,
            "call_params": params,
            "lifecycle": {"retry": retry, "fallbacks": chance.choice([[], [model]])},
        }
        path = f"/v1/branches/{branch}/operate"
    answer = await world.service.http.post(path, json=body, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202, answer.text
    run: dict[str, Any] = answer.json()
    return run


async def to_the_end(world: World, chance: Random, run: dict[str, Any]) -> dict[str, Any]:
    """Decide what has to be decided, or cancel the run."""
    get, http = world.service.get, world.service.http
    if chance.random() < 0.2:
        await asyncio.sleep(0.01 * chance.randrange(8))
        await http.post(f"/v1/runs/{run['id']}/cancel")

    async def ended() -> bool:
        for approval in (await get(f"/v1/approvals?run_id={run['id']}&status=pending"))["data"]:
            said = chance.choice(["approve", "deny", "edit"])
            more = {"arguments": {"text": "edited"}} if said == "edit" else {}
            path = f"/v1/function-calls/{approval['function_call_id']}/decision"
            await http.post(path, json={"decision": said, **more})
        return (await get(f"/v1/runs/{run['id']}"))["ended_at"] is not None

    await until_true(ended)
    found: dict[str, Any] = await get(f"/v1/runs/{run['id']}")
    return found


def agrees(then: dict[str, Any], noted: Noted) -> None:
    """What the log tells is what was stored."""
    row = noted.run
    assert then["status"] == row["status"]
    assert (then["ended_at"] is None) == (row["ended_at"] is None)
    if then["ended_at"] is not None:
        for name in ("result", "error"):
            assert then[name] == row[name], name
        assert then["attempts"] == row["attempts"]
        stored = row["validation"] and {k: row["validation"][k] for k in ("ok", "kind", "errors")}
        assert then["validation"] == stored
    told = {one["call_id"]: one for one in then["function_calls"] if one["call_id"] is not None}
    rows: dict[str, list[dict[str, Any]]] = {}
    for one in noted.calls:
        rows.setdefault(one["call_id"], []).append(one)
    assert told.keys() <= rows.keys()
    for call_id, attempts in rows.items():
        if call_id in told:
            call_agrees(told[call_id], attempts)
        else:
            assert attempts[-1]["status"] in OPEN  # asked for by the answer, and nothing of it told yet


def call_agrees(told: dict[str, Any], attempts: list[dict[str, Any]]) -> None:
    last = attempts[-1]
    if told["status"] == "skipped" and last["status"] in OPEN:
        return  # a person has said no, and the end is about to be stored
    if told["status"] == "failed" and last["status"] in OPEN:
        last = attempts[-2]  # another attempt is stored, and not begun
    if told["status"] in OPEN:
        assert last["status"] in OPEN
        return
    assert told["status"] == last["status"]
    assert told["function"] == last["function"]
    assert told["output"] == last["response"]
    if told["status"] in ("failed", "cancelled", "aborted"):
        error = last["error"]
        assert told["error"] == f"{error['error']}: {error['message']}"


def whole(said: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, str]]:
    """Position, kind and what it says of each message that counts, actions in pairs only."""
    answered = {m["action_request_id"] for m in said} - {None}
    return [
        (m["position"], m["kind"], what(m["content"]))
        for m in said
        if m["kind"] != "action_request" or m["id"] in answered
    ]


def of_denied(then: Mapping[str, Any], notes: Sequence[Noted]) -> list[tuple[int, str, str]]:
    """The pairs of calls that were denied by then: their end is no event, and is stored a little later."""
    denied = {one["call_id"] for one in then["function_calls"] if one["status"] == "skipped"}
    requests = {row["action_request_id"] for row in notes[-1].calls if row["call_id"] in denied}
    return whole([m for m in notes[-1].said if {m["id"], m["action_request_id"]} & requests])


def what(content: Mapping[str, Any]) -> str:
    """The content without its links."""
    return json.dumps({k: v for k, v in content.items() if not k.startswith("action_re")}, sort_keys=True)


async def forked(world: World, run: dict[str, Any], seq: int) -> list[tuple[int, str, str]]:
    answer = await world.service.http.post(f"/v1/runs/{run['id']}/fork", json={"at_seq": seq})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["parent_id"], made["forked_run_id"], made["forked_seq"]) == (
        run["branch_id"],
        run["id"],
        seq,
    )
    copied = await world.service.messages(made["id"])
    return [(m["position"], m["kind"], what(m["content"])) for m in copied]


@pytest.mark.parametrize("seed", range(8))
async def test_every_moment_is_what_was_stored_then(world: World, seed: int) -> None:
    """Runs with calls, retries, fallbacks, approvals and cancellations: each commit, and the forks of it."""
    chance, get = Random(seed), world.service.get
    branch = await world.service.branch(system="Be brief.", gate=GATE)
    for _ in range(5):
        runs = [await begin(world, chance, branch) for _ in range(chance.choice([1, 1, 2]))]
        for run in runs:
            ended = await to_the_end(world, chance, run)
            notes = await world.notes(run["id"])
            assert notes[-1].seq == ended["last_seq"]
            begun = False
            for noted in notes:
                then = await get(f"/v1/runs/{run['id']}?at={noted.seq}")
                agrees(then, noted)
                begun = begun or then["started_at"] is not None
                if begun:
                    expected = {*whole(noted.said), *of_denied(then, notes)}
                    assert await forked(world, ended, noted.seq) == sorted(expected)
            for name in ("status", "result", "error", "usage", "attempts", "ended_at", "kind", "branch_id"):
                assert then[name] == ended[name], name
