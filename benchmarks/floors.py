"""What nothing durable can be faster than, measured on the same machine at the same time."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import asyncpg

_INSERT = "INSERT INTO floor.rows (body) VALUES ($1)"
_BODY = "x" * 200
_PAGE = bytes(8192)
_sync = getattr(os, "fdatasync", os.fsync)


async def make_table(connection: asyncpg.Connection[Any]) -> None:
    """A table of our own, apart from the service's."""
    await connection.execute(
        "CREATE SCHEMA floor "
        "CREATE TABLE rows (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)"
    )


async def commit_ms(connection: asyncpg.Connection[Any], count: int) -> float:
    """Median time of a small insert and its commit, over one connection that does nothing else."""
    times: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        await connection.execute(_INSERT, _BODY)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def sync_ms(folder: Path, count: int) -> float:
    """Median time in which a page is certainly on disk, written over an old one as a log of commits is."""
    times: list[float] = []
    path = folder / "floor"
    with path.open("wb", buffering=0) as file:
        file.write(_PAGE * count)
        os.fsync(file.fileno())
        file.seek(0)
        for _ in range(count):
            began = time.perf_counter()
            file.write(_PAGE)
            _sync(file.fileno())
            times.append(time.perf_counter() - began)
    path.unlink()
    return statistics.median(times) * 1000
