"""The service as a process: killed, stopped, started again on the same data."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.polling import until
from tests.support.process import ROOT, Process, serving

pytestmark = pytest.mark.anyio

ENDLESS: list[dict[str, Any]] = [{"text": "one "}, {"text": "two "}, {"wait_ms": 600_000}, {"end": "stop"}]

ANSWER: list[dict[str, Any]] = [{"text": "one "}, {"text": "and two"}, {"end": "stop"}]


async def _branch(service: Process) -> str:
    await service.http.put(
        "/v1/models/endless",
        json={
            "provider": "scripted",
            "model": "endless",
            "options": {"streams": [{"attempts": [ENDLESS, ANSWER]}]},
            "lifecycle": {"timeout": None},
        },
    )
    answer = await service.http.post("/v1/branches", json={"chat_model": "endless"})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_all_runs_of_a_process_that_is_killed_go_on_and_end(database_url: str, tmp_path: Path) -> None:
    async with serving(database_url, tmp_path) as first:
        talking, acting = await _branch(first), await _branch(first)
        streamed = await first.started(talking, "operate", {"instruction": "talk"})
        queued = await first.started(talking, "act", {"requests": {"function": "nothing", "arguments": {}}})
        called = await first.started(acting, "act", {"requests": {"function": "forever", "arguments": {}}})
        asked = await first.posted("/v1/consensus", {"instruction": "vote", "voters": ["endless"] * 2})
        seen = await first.follow(streamed, "TOKEN")
        await first.follow(called, "TOOL_START")
        await first.follow(asked, "TOKEN")
        first.process.kill()
        await first.process.wait()
    async with serving(database_url, tmp_path) as second:
        events = await second.follow(streamed, "")
        assert events[: len(seen)] == seen
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["type"] == "RUN_COMPLETED"
        run = (await second.http.get(f"/v1/runs/{streamed}")).json()
        assert (run["status"], run["result"]) == ("completed", "one and two")
        after = await second.follow(queued, "")
        assert after[-1]["type"] == "RUN_COMPLETED"
        assert after[1]["ts"] >= events[-1]["ts"]
        assert (await second.follow(asked, ""))[-1]["meta"]["result"]["result"] == "one and two"
        assert (await second.follow(called, ""))[-1]["type"] == "RUN_COMPLETED"
        (call,) = (await second.http.get(f"/v1/function-calls?run_id={called}")).json()["data"]
        assert (call["status"], call["execution"]["error"]["error"]) == ("aborted", "OUTCOME_UNKNOWN")
        messages = (await second.http.get(f"/v1/branches/{acting}/messages?order=asc")).json()["data"]
        assert [message["kind"] for message in messages] == ["action_request", "action_response"]
        assert messages[0]["content"]["action_response_id"] == messages[1]["id"]


async def test_a_stop_ends_streams_resumably_and_the_process_cleanly(
    database_url: str, tmp_path: Path
) -> None:
    async with serving(database_url, tmp_path, BRANCHLINE_GRACE_S="0.5") as service:
        run = await service.started(await _branch(service), "operate", {"instruction": "talk"})
        watching = asyncio.create_task(service.follow(run, ""))
        await service.follow(run, "TOKEN")
        service.process.send_signal(signal.SIGTERM)
        seen = await watching
        assert seen
        assert seen[-1]["type"] != "RUN_COMPLETED"
        assert await asyncio.wait_for(service.process.wait(), 60) == 0
    async with serving(database_url, tmp_path) as again:
        events = await again.follow(run, "")
        assert events[: len(seen)] == seen
        recovered = next(event for event in events if event["type"] == "RUN_RECOVERED")
        assert recovered["meta"] == {"epoch": 2, "cause": "shutdown"}
        assert events[-1]["meta"]["result"] == "one and two"


async def test_three_processes_start_at_once_on_an_empty_database(postgres: Any, tmp_path: Path) -> None:
    async with postgres.database() as url, asyncio.timeout(90):

        async def one(number: int) -> str:
            async with serving(url, tmp_path / str(number)) as service:
                ready.append(number)
                await until(lambda: len(ready) == 3, within_s=60)
                return str((await service.http.get("/healthz")).json()["status"])

        ready: list[int] = []
        assert await asyncio.gather(*(one(number) for number in range(3))) == ["ok"] * 3


async def test_an_address_in_use_is_said_in_a_line(database_url: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "app.cli", "serve", "--port", str(port), "--data-dir", str(tmp_path)),
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": database_url},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, complaint = await process.communicate()
    assert process.returncode == 2
    assert b"--port" in complaint
    assert b"Traceback" not in complaint


async def test_serving_others_without_a_key_is_refused(database_url: str, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "app.cli", "serve", "--host", "0.0.0.0", "--port", "0", "--data-dir", str(tmp_path)),
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, complaint = await process.communicate()
    assert process.returncode == 2
    assert b"BRANCHLINE_BOOTSTRAP_KEY" in complaint


async def test_a_short_lease_is_renewed_before_it_runs_out(database_url: str, tmp_path: Path) -> None:
    """Nobody can take a run away from a process that lives, whatever lease the operator has chosen."""
    call = {"function": "later", "arguments": {"seconds": 4, "value": "there"}}
    connection = await asyncpg.connect(database_url)
    async with serving(database_url, tmp_path) as service:
        branch = (await service.http.post("/v1/branches", json={})).json()["id"]
        acting = asyncio.create_task(
            service.http.post(f"/v1/branches/{branch}/act", json={"requests": [call]})
        )
        late = 0
        while not acting.done():
            late += await connection.fetchval("SELECT count(*) FROM runs WHERE lease_until < now()")
        assert acting.result().json()["result"][0]["output"] == "there"
        assert late == 0
    await connection.close()
