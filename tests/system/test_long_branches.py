"""A branch of fifty thousand messages, and a run of half a million events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest

from app.core.record import pack
from tests.support.process import Process, serving
from tests.support.service import frames

pytestmark = pytest.mark.anyio

MESSAGES: Final = 50_000
TOKENS: Final = 500_000
BLOCK: Final = 250
"""Tokens of a row."""
MEMORY_BYTES: Final = 64 << 20
"""What a reader may take; all events at once take several times as much."""

SCRIPT = [{"text": "said"}, {"end": "stop"}]
STREAMED = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def long_data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("long")


class Long:
    """The service with such a branch and such a run on it."""

    def __init__(self, service: Process, branch: str, run: dict[str, Any], last_seq: int) -> None:
        self.service = service
        self.branch = branch
        self.run = run
        self.last_seq = last_seq

    def most_memory(self) -> int:
        """The most bytes that the process has had in memory."""
        status = Path(f"/proc/{self.service.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024


@pytest.fixture
async def long(database_url: str, long_data_dir: Path) -> AsyncIterator[Long]:
    async with serving(database_url, long_data_dir) as service:
        model = {"provider": "scripted", "model": "m", "options": {"streams": [{"attempts": [SCRIPT]}]}}
        await service.http.put("/v1/models/talker", json=model)
        branch = (await service.http.post("/v1/branches", json={"chat_model": "talker"})).json()["id"]
        run = await operated(service, branch)
        connection = await asyncpg.connect(database_url)
        try:
            last_seq = await lengthen_run(connection, UUID(run["id"]))
            await lengthen_branch(connection, UUID(branch))
        finally:
            await connection.close()
        yield Long(service, branch, run, last_seq)


async def operated(service: Process, branch: str) -> dict[str, Any]:
    answer = await service.http.post(
        f"/v1/branches/{branch}/operate", json={"instruction": "go"}, headers={"Prefer": "wait=60"}
    )
    run: dict[str, Any] = answer.json()
    assert (answer.status_code, run["status"], run["result"]) == (200, "completed", "said"), answer.text
    return run


async def lengthen_run(connection: asyncpg.Connection[Any], run_id: UUID) -> int:
    """Have the run's first token followed by many more; the number of its last event."""
    after = await connection.fetchval("SELECT max(seq) FROM token_blocks WHERE run_id = $1", run_id)
    for part in (1 << 30, TOKENS - (1 << 30)):  # by a detour, for numbers are unique at every moment
        await connection.execute(
            "UPDATE events SET seq = seq + $3 WHERE run_id = $1 AND seq > $2", run_id, after, part
        )
    await connection.execute(
        """INSERT INTO token_blocks (run_id, ts, seq, count, stream, attempt, fallback, text, lengths, delays)
           SELECT run_id, ts, $2::int + 1 + nr * $3::int, $3, stream, attempt, fallback, $4, $5, $6
           FROM token_blocks, generate_series(0, $7::int - 1) AS nr WHERE run_id = $1""",
        run_id,
        after,
        BLOCK,
        "word " * BLOCK,
        pack([5] * BLOCK),
        pack([0] * BLOCK),
        TOKENS // BLOCK,
    )
    last: int = await connection.fetchval(
        "UPDATE runs SET last_seq = last_seq + $2 WHERE id = $1 RETURNING last_seq", run_id, TOKENS
    )
    return last


async def lengthen_branch(connection: asyncpg.Connection[Any], branch_id: UUID) -> None:
    """Have its messages repeated."""
    await connection.execute(
        """INSERT INTO messages (id, project_id, branch_id, position, kind, content, created_at)
           SELECT gen_random_uuid(), project_id, branch_id, position + 2 * nr, kind, content, created_at
           FROM messages, generate_series(1, $2::int / 2 - 1) AS nr WHERE branch_id = $1""",
        branch_id,
        MESSAGES,
    )
    await connection.execute("UPDATE branches SET next_position = $2 WHERE id = $1", branch_id, MESSAGES)


async def test_v18_long_ones_are_read_in_parts(long: Long) -> None:
    http, events = long.service.http, f"/v1/runs/{long.run['id']}/events"
    answer = await http.get(f"/v1/branches/{long.branch}/messages")
    assert (len(answer.json()["data"]), answer.json()["has_more"]) == (100, True)
    assert len(answer.content) < 1 << 20

    near_the_end = {**STREAMED, "Last-Event-ID": f"{long.run['id']}:{long.last_seq - 20}"}
    async with http.stream("GET", events, headers=near_the_end) as answer:
        seen = [
            frame.data["seq"] async for frame in frames(answer.aiter_lines()) if frame.event != "stream.end"
        ]
    assert seen == list(range(long.last_seq - 19, long.last_seq + 1))

    before, tokens, last = long.most_memory(), 0, b""
    async with http.stream("GET", events, headers=STREAMED) as answer:
        async for piece in answer.aiter_bytes():
            joined = last[-100:] + piece
            tokens += joined.count(b"event: TOKEN\n") - last[-100:].count(b"event: TOKEN\n")
            last = joined
    assert tokens == TOKENS + 1
    assert b"RUN_COMPLETED" in last[-2_000:] or b"stream.end" in last[-2_000:]
    assert long.most_memory() - before < MEMORY_BYTES


async def test_v18_a_long_conversation_is_gone_on_with(long: Long) -> None:
    await operated(long.service, long.branch)
    answer = await long.service.http.get(f"/v1/branches/{long.branch}/messages?order=desc&limit=2")
    said = [(message["kind"], message["position"]) for message in answer.json()["data"]]
    assert said == [("assistant_response", MESSAGES + 1), ("instruction", MESSAGES)]
