"""Keys with limits, and minutes of the database's clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
import httpx

T = TypeVar("T")

OF_MINUTE = "SELECT floor(extract(epoch FROM clock_timestamp()) / 60)::bigint"


class Limited:
    """What is limited in a project, by way of a client that may do everything there."""

    def __init__(self, http: httpx.AsyncClient, project: str) -> None:
        self.http = http
        self.project = f"/v1/projects/{project}"

    @classmethod
    async def of(cls, http: httpx.AsyncClient) -> Limited:
        """The project that the client works in."""
        own = (await http.get("/v1/limits")).json()["data"][-1]
        return cls(http, own["project_id"])

    async def key(self, *scopes: str, **limits: Any) -> tuple[str, dict[str, str]]:
        """A key with these limits: its id, and the header that shows it."""
        body = {"name": "limited", "scopes": scopes or ["read", "run"]}
        made = (await self.http.post(f"{self.project}/keys", json=body)).json()
        await self.set(made["id"], **limits)
        return made["id"], {"Authorization": f"Bearer {made['key']}"}

    async def set(self, key: str | None, **limits: Any) -> dict[str, Any]:
        """Set the limits of a key, or of the project; as they stand then."""
        answer = await self.http.put(self.path(key), json=limits)
        assert answer.status_code == 200, answer.text
        set_ones: dict[str, Any] = answer.json()
        return set_ones

    async def get(self, key: str | None) -> dict[str, Any]:
        """The limits as they stand."""
        answer = await self.http.get(self.path(key))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def path(self, key: str | None) -> str:
        """Where the limits of a key are, or those of the project."""
        return f"{self.project}/limits" if key is None else f"{self.project}/keys/{key}/limits"


async def in_one_minute(database_url: str, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` gives when it was done within one minute of the database's clock; else it is done again."""
    connection = await asyncpg.connect(database_url)
    try:
        for _ in range(3):
            before = await connection.fetchval(OF_MINUTE)
            done = await work()
            if await connection.fetchval(OF_MINUTE) == before:
                return done
    finally:
        await connection.close()
    raise AssertionError("the work takes longer than a minute")
