"""Reading a run as it stood, and forking it: what clients see, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.adapters.db.engine import driver_arguments
from tests.support.polling import until_true
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

_numbers = itertools.count()

Steps = list[dict[str, Any]]

ANSWER: Steps = [{"text": "do"}, {"text": "ne"}, {"end": "stop"}]
SLOW: Steps = [{"text": "one "}, {"wait_ms": 60_000}, {"text": "two"}, {"end": "stop"}]
ADD = {"tool_call": {"index": 0, "id": "a", "name": "add", "arguments": '{"a": 1, "b": 2}'}}
HANG = {"tool_call": {"index": 1, "id": "b", "name": "forever", "arguments": "{}"}}
ACTS: Steps = [{"text": "acting"}, ADD, HANG, {"end": "tool_calls"}]


async def model(service: Service, *steps: dict[str, Any]) -> str:
    return await service.scripted(f"m{next(_numbers)}", list(steps))


async def seq_of(service: Service, run: dict[str, Any], kind: str) -> int:
    """The number of the first event of a type."""
    return next(int(e["seq"]) for e in await service.events(run["id"]) if e["type"] == kind)


async def then(service: Service, run: dict[str, Any], seq: int) -> dict[str, Any]:
    found: dict[str, Any] = await service.get(f"/v1/runs/{run['id']}?at={seq}")
    return found


async def fork(service: Service, run: dict[str, Any], seq: int, **more: Any) -> Any:
    return await service.http.post(f"/v1/runs/{run['id']}/fork", json={"at_seq": seq, **more})


async def kinds(service: Service, branch: str) -> list[str]:
    return [m["kind"] for m in await service.messages(branch)]


async def acting(service: Service, branch: str) -> dict[str, Any]:
    """A run that has answered, has one result, and whose other tool never ends by itself."""
    run = await service.started(branch, chat_model=await model(service, *ACTS), actions=True)

    async def halfway() -> bool:
        return "TOOL_COMPLETED" in [event["type"] for event in await service.events(run["id"])]

    await until_true(halfway)
    return run


async def test_a_stream_is_read_as_it_stood_in_its_middle(service: Service) -> None:
    branch = await service.branch(chat_model=await model(service, *ANSWER))
    run = await service.operate(branch)
    half = await then(service, run, await seq_of(service, run, "TOKEN"))
    assert (half["object"], half["status"], half["result"], half["ended_at"]) == (
        "run_then",
        "running",
        *[None] * 2,
    )
    (stream,) = half["streams"]
    assert (stream["purpose"], stream["status"], stream["text"], stream["attempts"]) == (
        "main",
        "open",
        "do",
        1,
    )
    whole = await then(service, run, run["last_seq"])
    assert (whole["status"], whole["result"], whole["usage"]) == ("completed", "done", run["usage"])
    assert (whole["streams"][0]["status"], whole["streams"][0]["text"]) == ("completed", "done")
    first = await then(service, run, 1)
    assert (first["status"], first["streams"], first["attempts"]) == ("running", [], 0)


async def test_the_voters_of_a_consensus_are_streams_and_its_answer_counts_at_its_end(
    service: Service,
) -> None:
    branch = await service.branch()
    voters = [await model(service, *ANSWER) for _ in range(2)]
    run = await service.consensus(voters, branch_id=branch)
    before = await seq_of(service, run, "CONSENSUS_END") - 1
    found = await then(service, run, before)
    assert [(s["purpose"], s["index"], s["text"]) for s in found["streams"]] == [
        ("voter", 0, "done"),
        ("voter", 1, "done"),
    ]
    assert (await then(service, run, run["last_seq"]))["attempts"] == run["attempts"] == 2
    lacks, has = [(await fork(service, run, seq)).json()["id"] for seq in (before, before + 1)]
    assert await kinds(service, lacks) == []
    assert await kinds(service, has) == ["instruction", "assistant_response"]


async def test_a_run_is_forked_while_it_goes_on_and_neither_disturbs_the_other(service: Service) -> None:
    branch = await service.branch(chat_model=await model(service, *ANSWER), system="Be brief.")
    await service.operate(branch, instruction="before")
    run = await acting(service, branch)
    answered = await seq_of(service, run, "COMPLETE")
    had = ["system", "instruction", "assistant_response"]
    for seq, expected in [
        (answered - 1, had),
        (answered, [*had, *had[1:]]),
        (await seq_of(service, run, "TOOL_RESULT"), [*had, *had[1:]]),
        (await seq_of(service, run, "TOOL_COMPLETED"), [*had, *had[1:], "action_request", "action_response"]),
    ]:
        made = (await fork(service, run, seq, name="another way")).json()
        assert (made["name"], made["system"]) == ("another way", "Be brief.")
        assert await kinds(service, made["id"]) == expected
        assert (await service.operate(made["id"], instruction="on"))["status"] == "completed"
        assert await kinds(service, made["id"]) == [*expected, *had[1:]]
    await service.http.post(f"/v1/runs/{run['id']}/cancel")
    await service.ended(run["id"])
    pair = ["action_request", "action_response"]
    assert sorted(await kinds(service, branch)) == sorted([*had, *had[1:], *pair, *pair])


async def test_what_was_rolled_back_can_be_gone_on_with_in_a_fork(service: Service) -> None:
    branch = await service.branch(chat_model=await model(service, *ANSWER))
    run = await acting(service, branch)
    await service.operate(branch, instruction="next", if_busy="rollback")
    ended = await service.ended(run["id"])
    made = (await fork(service, run, ended["last_seq"])).json()
    pair = ["action_request", "action_response"]
    assert sorted(await kinds(service, made["id"])) == sorted(
        ["instruction", "assistant_response", *pair, *pair]
    )
    assert await kinds(service, branch) == ["instruction", "assistant_response"]
    # And a fork of the later run has what that one found: nothing.
    (later,) = [r for r in (await service.get(f"/v1/branches/{branch}/runs"))["data"] if r["id"] != run["id"]]
    made = (await fork(service, later, await seq_of(service, later, "RUN_STARTED"))).json()
    assert await kinds(service, made["id"]) == []


async def test_a_fork_is_made_once_for_a_key_and_is_in_the_audit_log(service: Service) -> None:
    branch = await service.branch(chat_model=await model(service, *ANSWER))
    run = await service.operate(branch)
    made = []
    for _ in range(2):
        answer = await service.http.post(
            f"/v1/runs/{run['id']}/fork",
            json={"at_seq": run["last_seq"]},
            headers={"Idempotency-Key": "once"},
        )
        made.append(answer.json())
    assert made[0] == made[1]
    assert (made[0]["forked_run_id"], made[0]["forked_seq"]) == (run["id"], run["last_seq"])
    log = (await service.get(f"/v1/audit-log?subject=branch:{made[0]['id']}"))["data"]
    assert [(entry["subject"], entry["detail"]["changed"]) for entry in log] == [
        (f"branch:{made[0]['id']}", ["forked_run_id", "forked_seq"])
    ]


async def test_what_cannot_be_forked_or_read_is_refused(service: Service) -> None:
    branch = await service.branch(chat_model=await model(service, *SLOW))
    first = await service.started(branch)
    queued = await service.started(branch)
    waits = await fork(service, queued, 1)
    assert (waits.status_code, waits.json()["code"]) == (409, "conflict")
    assert "RUN_STARTED" in waits.json()["detail"]
    assert (await then(service, queued, 1))["status"] == "queued"
    for seq in (99_999, 0, -1):
        refused = await fork(service, first, seq)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/at_seq")
        refused = await service.http.get(f"/v1/runs/{first['id']}?at={seq}")
        assert (refused.status_code, refused.json()["errors"][0]["parameter"]) == (422, "at")
    voters = [await model(service, *ANSWER) for _ in range(2)]
    alone = await service.consensus(voters)
    assert (await fork(service, alone, 1)).status_code == 409
    missing = await service.http.post(f"/v1/runs/{branch}/fork", json={"at_seq": 1})
    assert missing.status_code == 404


@pytest.fixture
async def stored(database_url: str) -> AsyncIterator[tuple[Service, asyncpg.Connection[Any]]]:
    """A service of the test's own, and its database."""
    async with running(database_url) as service:
        connection = await asyncpg.connect(**driver_arguments(database_url))
        yield service, connection
        await connection.close()


async def test_a_log_that_is_not_kept_is_gone(stored: tuple[Service, asyncpg.Connection[Any]]) -> None:
    service, connection = stored
    branch = await service.branch(chat_model=await model(service, *ANSWER))
    run = await service.operate(branch)
    asked: dict[str, Any] = {
        "url": f"/v1/runs/{run['id']}/fork",
        "json": {"at_seq": 5},
        "headers": {"Idempotency-Key": "k"},
    }
    before = await service.http.post(**asked)
    await connection.execute("DELETE FROM events WHERE run_id = $1 AND seq < 3", UUID(run["id"]))
    for answer in (
        await service.http.get(f"/v1/runs/{run['id']}?at=5"),
        await fork(service, run, 5),
    ):
        assert (answer.status_code, answer.json()["code"]) == (410, "events_gone")
    again = await service.http.post(**asked)
    assert (again.status_code, again.json()) == (201, before.json())


@pytest.mark.parametrize("spoke", [True, False])
async def test_a_run_that_did_not_say_where_it_began_is_forked_where_it_spoke(
    stored: tuple[Service, asyncpg.Connection[Any]], spoke: bool
) -> None:
    """As the version before wrote its logs."""
    service, connection = stored
    branch = await service.branch(chat_model=await model(service, *ANSWER))
    await service.operate(branch)
    run = await service.operate(
        branch, **({} if spoke else {"chat_model": await model(service, {"error": {"kind": "tls"}})})
    )
    await connection.execute("UPDATE events SET meta = NULL WHERE meta::text LIKE '{\"position\":%'")
    made = await fork(service, run, 1)
    if spoke:
        assert await kinds(service, made.json()["id"]) == ["instruction", "assistant_response"]
    else:
        assert (made.status_code, made.json()["code"]) == (409, "conflict")
