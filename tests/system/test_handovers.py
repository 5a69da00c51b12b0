"""Runs change hands between processes that live: one is stopped in good order, or paused past its leases."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat_wire
from tests.support.invariants import assert_log
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until, until_true
from tests.support.process import Process, serving
from tests.support.service import frames, text_by_offset

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
STREAMS = 50
WORDS = [f"w{number} " for number in range(40)]
GOES_ON: Json = {"timeout": None, "continue_from_last_good_token": {"checkpoint_interval": 5}}


async def register(process: Process, server: ModelServer, lifecycle: Json) -> None:
    body = {"provider": "openai", "base_url": server.base_url, "model": "m", "lifecycle": lifecycle}
    assert (await process.http.put("/v1/models/m", json=body)).status_code < 300


async def begun(process: Process) -> str:
    branch = (await process.http.post("/v1/branches", json={"chat_model": "m"})).json()["id"]
    return await process.started(branch, "operate", {"instruction": "go"})


async def events_of(process: Process, run_id: str) -> list[Json]:
    answer = await process.http.get(f"/v1/runs/{run_id}/events?limit=1000")
    found: list[Json] = answer.json()["data"]
    return found


async def asked(process: Process, run_id: str, times: int) -> bool:
    """Whether a run's log tells that its model was asked so often."""
    return [event["type"] for event in await events_of(process, run_id)].count("STREAM_INIT") == times


async def talked(process: Process, run_id: str, text: str) -> bool:
    """Whether a run's log has come to this text."""
    return text_by_offset(await events_of(process, run_id)) == text


async def attached(process: Process, run_id: str, after: int = 0) -> tuple[list[Json], bool]:
    """What a client is sent until the stream ends, and whether it was told that nothing follows."""
    seen: list[Json] = []
    headers = {"Accept": "text/event-stream", "Last-Event-ID": f"{run_id}:{after}"}
    url = f"/v1/runs/{run_id}/events"
    async with process.http.stream("GET", url, headers=headers, timeout=60) as answer:
        async for frame in frames(answer.aiter_lines()):
            if frame.event == "stream.end":
                return seen, True
            seen.append(frame.data)
    return seen, False


async def test_a_process_that_is_stopped_leaves_its_streams_to_another(
    database_url: str, tmp_path: Path
) -> None:
    endless = Attempt([*(chat_wire.delta({"content": word}) for word in WORDS[:10])], then="hang")
    rest = Attempt(chat_wire.text(*WORDS[10:]))
    async with (
        ModelServer({"m": [*[endless] * STREAMS, rest]}) as server,
        serving(database_url, tmp_path / "one", BRANCHLINE_GRACE_S="0.5") as one,
        serving(database_url, tmp_path / "two") as two,
    ):
        await register(one, server, GOES_ON)
        runs = await asyncio.gather(*(begun(one) for _ in range(STREAMS)))
        clients = [asyncio.create_task(attached(one, run)) for run in runs]

        async def talking() -> bool:
            logs = await asyncio.gather(*(events_of(one, run) for run in runs))
            return all(text_by_offset(log) == "".join(WORDS[:10]) for log in logs)

        await until_true(talking, within_s=30)
        one.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(one.process.wait(), 30) == 0
        cut = [await client for client in clients]
        assert {told for _, told in cut} == {False}
        for run, (seen, _) in zip(runs, cut, strict=True):
            resumed, told = await attached(two, run, seen[-1]["seq"])
            events = await events_of(two, run)
            assert told
            assert seen + resumed == events
            assert_log(events)
            recovered = [event["meta"] for event in events if event["type"] == "RUN_RECOVERED"]
            assert recovered == [{"epoch": 2, "cause": "shutdown"}]
            assert events[-1]["meta"]["result"] == text_by_offset(events) == "".join(WORDS)
        assert len(server.requests) == 2 * STREAMS
        assert len(server.left_early) == STREAMS


async def test_a_paused_process_writes_nothing_when_it_wakes_up(database_url: str, tmp_path: Path) -> None:
    slow: list[bytes | float] = []
    for word in WORDS:
        slow += [chat_wire.delta({"content": word}), 0.05]
    async with (
        ModelServer({"m": [Attempt(slow, then="hang"), Attempt(chat_wire.text(*WORDS))]}) as server,
        serving(database_url, tmp_path / "one") as one,
        serving(database_url, tmp_path / "two") as two,
    ):
        await register(one, server, {"timeout": None})
        run = await begun(one)
        client = asyncio.create_task(attached(one, run))
        await one.follow(run, "TOKEN")
        one.process.send_signal(signal.SIGSTOP)
        events = await two.follow(run, "")
        assert [event["type"] for event in events].count("RUN_RECOVERED") == 1
        assert events[-1]["meta"]["result"] == text_by_offset(events) == "".join(WORDS)
        one.process.send_signal(signal.SIGCONT)
        # Whoever was attached to it all the time misses nothing, and is told nothing else.
        assert await client == (events, True)
        assert await events_of(one, run) == await events_of(two, run) == events
        await until(lambda: len(server.left_early) == 1)
        assert len(server.requests) == 2


async def test_who_waits_at_a_paused_process_is_told_how_the_run_ended_elsewhere(
    database_url: str, tmp_path: Path
) -> None:
    before = Attempt([chat_wire.delta({"content": "old"}), 3.0, *chat_wire.text(" story")])
    async with (
        ModelServer({"m": [before, Attempt(chat_wire.text("news"))]}) as server,
        serving(database_url, tmp_path / "one") as one,
        serving(database_url, tmp_path / "two") as two,
    ):
        await register(one, server, {"timeout": None})
        branch = (await one.http.post("/v1/branches", json={"chat_model": "m"})).json()["id"]
        url = f"/v1/branches/{branch}/operate"
        waiting = asyncio.create_task(one.http.post(url, json={"instruction": "go"}))
        await until(lambda: len(server.requests) == 1)

        async def runs() -> list[Json]:
            found: list[Json] = (await two.http.get(f"/v1/runs?branch_id={branch}")).json()["data"]
            return found

        await until_true(partial(asked, one, (await runs())[0]["id"], 1))
        one.process.send_signal(signal.SIGSTOP)

        async def ended() -> bool:
            return (await runs())[0]["status"] == "completed" and len(server.requests) == 2

        await until_true(ended)
        # By the time it wakes up its own model has said everything, and is read before anything else is.
        await until(lambda: server.answered == 2)
        one.process.send_signal(signal.SIGCONT)
        told = (await waiting).json()
        assert told["result"] == (await runs())[0]["result"] == "news"


async def test_a_run_that_has_lost_its_process_too_often_is_ended(database_url: str, tmp_path: Path) -> None:
    async with ModelServer({"m": [Attempt([chat_wire.delta({"content": "x"})], then="hang")]}) as server:
        run = ""
        for turn in range(4):
            async with serving(database_url, tmp_path) as process:
                if turn == 0:
                    await register(process, server, {"timeout": None})
                    run = await begun(process)

                await until_true(partial(asked, process, run, turn + 1))
                await until_true(partial(talked, process, run, "x"))
                assert len(server.requests) == turn + 1
                process.process.kill()
                await process.process.wait()
        async with serving(database_url, tmp_path) as process:
            events = await process.follow(run, "")
            assert_log(events)
            recovered = [event["meta"]["epoch"] for event in events if event["type"] == "RUN_RECOVERED"]
            assert recovered == [2, 3, 4]
            retries = [event["meta"]["attempt"] for event in events if event["type"] == "RETRY_ATTEMPT"]
            assert retries == [1, 2, 3]
            answer = (await process.http.get(f"/v1/runs/{run}")).json()
            assert (answer["status"], answer["error"]["code"]) == ("failed", "RECOVERY_EXHAUSTED")
            assert (answer["attempts"], answer["partial_text"]) == (4, "x")
            attempts = (await process.http.get(f"/v1/runs/{run}/attempts")).json()["data"]
            assert [attempt["outcome"] for attempt in attempts] == ["lost"] * 4
        assert len(server.requests) == 4
