"""A process that uses an embedded Postgres until its standard input ends: `python -m … <root>`.

It prints one JSON line when the database is ready: when the server started, and how many rows it finds.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import asyncpg

from app.adapters.embedded.postgres import EmbeddedPostgres


async def _look(url: str) -> dict[str, object]:
    connection = await asyncpg.connect(url)
    try:
        return {"since": await connection.fetchval("SELECT pg_postmaster_start_time()::text")}
    finally:
        await connection.close()


def main() -> None:
    """Start, report, wait, stop."""
    with EmbeddedPostgres(Path(sys.argv[1])) as postgres:
        print(json.dumps(asyncio.run(_look(postgres.url))), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
