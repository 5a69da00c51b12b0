"""What is left when all is over: the record, what clients heard, and what model and tools were asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx

from tests.support.model_server import Request
from tests.system.chaos.servers import Servers
from tests.system.chaos.wishes import Wish

Json = Mapping[str, Any]
TERMINAL: Mapping[str, str] = {
    "RUN_COMPLETED": "completed",
    "RUN_FAILED": "failed",
    "RUN_CANCELLED": "cancelled",
    "RUN_EXPIRED": "expired",
}
"""What a run is when it has ended with an event."""


@dataclass(slots=True)
class Recorded:
    """A run as it is on record."""

    run: Json
    events: Sequence[Json]
    calls: Sequence[Json]
    """Its function calls, one for each attempt."""
    key: str | None
    """The Idempotency-Key that was used for it."""
    replaces: str | None = None
    """The run whose place it took."""
    superseded: bool = False
    """Whether it was rolled back."""

    @property
    def id(self) -> str:
        """The run's."""
        return str(self.run["id"])

    @property
    def code(self) -> str | None:
        """The error's, None without an error."""
        return None if self.run["error"] is None else str(self.run["error"]["code"])

    @property
    def types(self) -> list[str]:
        """Of its events."""
        return [event["type"] for event in self.events]

    def __str__(self) -> str:
        return f"{self.run['kind']} {self.id} ({self.run['status']} {self.code or ''}, {self.key})"


@dataclass(slots=True)
class Evidence:
    """See the module's words."""

    runs: Sequence[Recorded]
    messages: Mapping[str, Sequence[Json]]
    """By branch, in their order, and also those that were rolled back."""
    shown: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    """By branch, those that are listed unless one asks for more."""
    wishes: Sequence[Wish] = ()
    model_requests: Sequence[Request] = ()
    tool_requests: Sequence[Request] = ()
    given: Mapping[int, str] = field(default_factory=dict)
    """Which call was given which answer of a tool, by the answer's number."""
    approved: Collection[str] = ()
    """The function calls that somebody has, or may have, approved."""

    def run_of(self, wish: Wish) -> Recorded | None:
        """The run that was made for a wish."""
        return next((seen for seen in self.runs if seen.key == wish.task), None)


async def gathered(
    url: str,
    database_url: str,
    servers: Servers,
    branches: Sequence[str],
    wishes: Sequence[Wish],
    approved: Collection[str],
) -> Evidence:
    """Read everything about these branches from a service that is well."""
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
        runs = [run for branch in branches for run in await _all(http, "/v1/runs", branch_id=branch)]
        runs += [
            run for run in await _all(http, "/v1/runs", kind="consensus") if _free(run, since=branches[0])
        ]
        stored = await _stored(database_url, [run["id"] for run in runs])
        recorded = [
            Recorded(
                run,
                await _all(http, f"/v1/runs/{run['id']}/events"),
                await _all(http, "/v1/function-calls", run_id=run["id"]),
                *stored[run["id"]],
            )
            for run in runs
        ]
        shown = {branch: await _messages(http, branch) for branch in branches}
        messages = {branch: await _messages(http, branch, superseded="true") for branch in branches}
    asked, posted = list(servers.models_heard.requests), list(servers.tools_heard.requests)
    return Evidence(recorded, messages, shown, wishes, asked, posted, dict(servers.tools.given), approved)


def _free(run: Json, *, since: str) -> bool:
    """Whether it has no branch, and is younger than what has this id: ids grow with time."""
    return run["branch_id"] is None and run["id"] > since


async def _messages(http: httpx.AsyncClient, branch: str, **filters: str) -> list[dict[str, Any]]:
    return await _all(http, f"/v1/branches/{branch}/messages", order="asc", **filters)


async def _all(http: httpx.AsyncClient, path: str, **filters: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    params: dict[str, str] = {"limit": "1000", **filters}
    while True:
        answer = await http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["data"]
        if not page["has_more"]:
            return found
        params["after"] = str(page["next"])


async def _stored(database_url: str, runs: Sequence[str]) -> dict[str, tuple[str | None, str | None, bool]]:
    """By run what no answer shows: its key, whose place it took, and whether it was rolled back."""
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch(
            "SELECT r.id::text, key, replaces::text, superseded FROM runs r "
            "LEFT JOIN idempotency_keys k ON k.run_id = r.id WHERE r.id = ANY($1::uuid[])",
            runs,
        )
    finally:
        await connection.close()
    return {id: (key, replaces, superseded) for id, key, replaces, superseded in rows}


async def epochs(database_url: str, run_id: str) -> Mapping[str, int]:
    """Those of a run and of the run whose place it takes, as the database has them."""
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch(
            "SELECT o.id::text, o.epoch FROM runs r JOIN runs o ON o.id IN (r.id, r.replaces) "
            "WHERE r.id = $1",
            run_id,
        )
    finally:
        await connection.close(timeout=5)
    return {row["id"]: row["epoch"] for row in rows}
