"""The whole service on a loopback port, in the test's own event loop, and a client for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
import pytest

from app.adapters.checked_network import Resolve, from_system
from app.server import Server, bound, url_of
from app.settings import Settings
from app.wiring import Application, application
from tests.support.invariants import assert_log


class QuietServer(Server):
    """A server that leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are pytest's."""
        yield


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event."""

    id: str | None
    event: str | None
    data: Any


@dataclass(slots=True)
class Service:
    """A running service and an HTTP client for it."""

    url: str
    http: httpx.AsyncClient
    made: Application

    async def model(self, name: str, **spec: Any) -> None:
        """Register a model."""
        answer = await self.http.put(f"/v1/models/{name}", json={"model": name, **spec})
        assert answer.status_code < 300, answer.text

    async def scripted(self, name: str, *attempts: Sequence[Mapping[str, Any]]) -> str:
        """Register a model that answers by script; its name."""
        await self.model(name, provider="scripted", options={"streams": [{"attempts": list(attempts)}]})
        return name

    async def branch(self, **settings: Any) -> str:
        """Make a branch; its id."""
        answer = await self.http.post("/v1/branches", json=settings)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def operate(self, branch: str, **body: Any) -> dict[str, Any]:
        """Operate and wait for the end; the run."""
        answer = await self.http.post(
            f"/v1/branches/{branch}/operate",
            json={"instruction": "go", **body},
            headers={"Prefer": "wait=50"},
        )
        assert answer.status_code == 200, answer.text
        run: dict[str, Any] = answer.json()
        return run

    async def started(self, branch: str, **body: Any) -> dict[str, Any]:
        """Operate without waiting; the run."""
        answer = await self.http.post(
            f"/v1/branches/{branch}/operate",
            json={"instruction": "go", **body},
            headers={"Prefer": "respond-async"},
        )
        assert answer.status_code == 202, answer.text
        run: dict[str, Any] = answer.json()
        return run

    async def consensus(self, voters: Sequence[Any], **body: Any) -> dict[str, Any]:
        """Ask several models and wait for the end; the run."""
        answer = await self.http.post(
            "/v1/consensus",
            json={"instruction": "go", "voters": voters, **body},
            headers={"Prefer": "wait=50"},
        )
        assert answer.status_code == 200, answer.text
        run: dict[str, Any] = answer.json()
        return run

    async def act(self, branch: str, *requests: Mapping[str, Any], **body: Any) -> dict[str, Any]:
        """Act and wait for the end; the run."""
        answer = await self.http.post(f"/v1/branches/{branch}/act", json={"requests": requests, **body})
        assert answer.status_code == 200, answer.text
        run: dict[str, Any] = answer.json()
        return run

    async def get(self, path: str) -> Any:
        """The JSON at a path."""
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def events(self, run_id: str, limit: int = 500) -> list[dict[str, Any]]:
        """The stored log, page by page."""
        out: list[dict[str, Any]] = []
        after = "0"
        while True:
            page = await self.get(f"/v1/runs/{run_id}/events?limit={limit}&after={after}")
            out += page["data"]
            if not page["has_more"]:
                assert_log(out)
                return out
            after = page["next"]

    async def messages(self, branch: str) -> list[dict[str, Any]]:
        """The conversation, oldest first."""
        found: list[dict[str, Any]] = (
            await self.get(f"/v1/branches/{branch}/messages?order=asc&limit=1000")
        )["data"]
        return found

    async def ended(self, run_id: str) -> dict[str, Any]:
        """The run when it has ended, learnt from its stream."""
        async for _ in self.stream("GET", f"/v1/runs/{run_id}/events"):
            pass
        run: dict[str, Any] = await self.get(f"/v1/runs/{run_id}")
        return run

    async def stream(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, json: Any = None
    ) -> AsyncGenerator[Frame, None]:
        """The frames of an event stream, comments left out."""
        async with self.http.stream(
            method, path, json=json, headers={"Accept": "text/event-stream", **(headers or {})}
        ) as answer:
            assert answer.status_code == 200, await answer.aread()
            async for frame in frames(answer.aiter_lines()):
                yield frame


async def frames(lines: AsyncIterator[str]) -> AsyncIterator[Frame]:
    """Server-sent events from the lines of a body."""
    id: str | None = None
    event: str | None = None
    data: list[str] = []
    async for line in lines:
        if not line:
            if data:
                yield Frame(id, event, orjson.loads("\n".join(data)))
            id, event, data = None, None, []
        elif line.startswith("id: "):
            id = line[4:]
        elif line.startswith("event: "):
            event = line[7:]
        elif line.startswith("data: "):
            data.append(line[6:])


@asynccontextmanager
async def running(database_url: str, **settings: Any) -> AsyncIterator[Service]:
    """The service on a free port, for the block; `resolve` may find the addresses of clients' hosts."""
    resolve: Resolve = settings.pop("resolve", from_system)
    chosen = Settings(
        **{
            "port": 0,
            "secret_key": "a pepper for tests",
            "sealing_keys": ("tests:" + "dGhlIHNlYWxpbmcga2V5IG9mIGFsbCB0aGUgdGVzdHM=",),
            "tool_modules": ("tests.support.tools",),
            "guardrail_modules": ("tests.support.guardrails",),
            "lease_ms": 15_000,
            **settings,
        }
    )
    with bound(chosen) as listener:
        url = url_of(listener)
        async with application(chosen, database_url, resolve=resolve) as made:
            server = QuietServer(made.app, made.closing.set)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            await server.up.wait()
            try:
                async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
                    yield Service(url, client, made)
            finally:
                server.stop()
                await serving


@pytest.fixture
async def service(database_url: str) -> AsyncIterator[Service]:
    """The whole service on a database of the test's own."""
    async with running(database_url) as made:
        yield made


def text_by_offset(events: Sequence[Mapping[str, Any]]) -> str:
    """The text of the main stream as a client keeps it: cut wherever an event says so."""
    main = next(
        e["stream_id"] for e in events if e["type"] == "SESSION_START" and e["meta"]["purpose"] == "main"
    )
    return text_of_stream(events, main)


def text_of_stream(events: Sequence[Mapping[str, Any]], stream_id: str) -> str:
    """The same of any stream."""
    text = ""
    for event in events:
        if event["stream_id"] != stream_id:
            continue
        if "contentOffset" in event["meta"]:
            text = text[: event["meta"]["contentOffset"]]
        if event["type"] == "TOKEN":
            text += event["meta"]["text"]
    return text
