"""One very long answer with everything on: what it stores, and what memory it takes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import asyncpg

from benchmarks.client import Connection, LoadFailed, request
from benchmarks.figures import Figures
from benchmarks.record import check_logs, stored
from benchmarks.targets import Branchline

LIFECYCLE: Final = {
    "guardrails": "recommended",
    "drift": {"threshold": 1.0},
    "continue_from_last_good_token": {"checkpoint_interval": 5},
}
"""Everything on; tokens that are all alike would count as drift below that."""
LENGTHS: Final = (10_000, 100_000)
LOOK_S: Final = 0.02


async def long_runs(
    service: Branchline, database: asyncpg.Connection[Any], service_mb: Callable[[], float]
) -> Figures:
    """Bytes for each token, and by how much the service's memory grows at most."""
    figures: Figures = {}
    for length in LENGTHS:
        model = f"fake-t{length}-b16"
        await service.prepare(1, model)
        body = {"instruction": "hi", "chat_model": model, "lifecycle": LIFECYCLE}
        asked = request(service.address, "POST", f"/v1/branches/{service.branch()}/operate", body)
        before, idle_mb = await stored(database), service_mb()
        most_mb = await _watched(service, asked, service_mb)
        await check_logs(database, before)
        kept = (await stored(database)).since(before)
        if kept.tokens != length:
            raise LoadFailed(f"{kept.tokens} tokens are stored of {length}")
        figures[f"long_{length}_bytes_per_token"] = kept.bytes / length
        figures[f"long_{length}_mb"] = most_mb - idle_mb
    return figures


async def _watched(service: Branchline, asked: bytes, service_mb: Callable[[], float]) -> float:
    """The most memory that the service had until the run's end."""
    connection = await Connection.open(service.address)
    running = asyncio.create_task(connection.ask(asked))
    most_mb = service_mb()
    try:
        while not running.done():
            await asyncio.wait({running}, timeout=LOOK_S)
            most_mb = max(most_mb, service_mb())
        service.check_run(running.result())
    finally:
        running.cancel()
        connection.close()
    return most_mb
