"""Export and import over HTTP, and what a project shows of its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import orjson

from tests.support.service import Service

NDJSON = {"Content-Type": "application/x-ndjson"}


async def exported(service: Service, path: str) -> list[dict[str, Any]]:
    """The lines of an export."""
    answer = await service.http.get(f"{path}/export")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == NDJSON["Content-Type"]
    lines = [orjson.loads(line) for line in answer.content.splitlines()]
    assert (lines[0]["object"], lines[-1]["object"]) == ("export", "export_end")
    return lines


def file_of(lines: Sequence[Any]) -> bytes:
    """Lines as they are sent."""
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


async def sent(service: Service, body: bytes) -> httpx.Response:
    """What an import is answered."""
    return await service.http.post("/v1/import", content=body, headers=NDJSON)


async def imported(service: Service, lines: Sequence[Any]) -> dict[str, Any]:
    """An import that is taken."""
    answer = await sent(service, file_of(lines))
    assert answer.status_code == 200, answer.text
    done: dict[str, Any] = answer.json()
    return done


async def all_of(service: Service, path: str) -> list[dict[str, Any]]:
    """A list, page by page, the oldest first."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        page = await service.get(f"{path}{'&' if '?' in path else '?'}order=asc&limit=1000{after}")
        found += page["data"]
        if not page["has_more"]:
            return found
        after = f"&after={page['next']}"


async def shown(service: Service) -> dict[str, Any]:
    """All that the API shows of the history of the one project."""
    history: dict[str, Any] = {"branches": await all_of(service, "/v1/branches")}
    history["messages"] = [await service.messages(branch["id"]) for branch in history["branches"]]
    history["runs"] = await all_of(service, "/v1/runs")
    for name in ("function-calls", "approvals", "client-calls"):
        history[name] = await all_of(service, f"/v1/{name}")
    for by in ("day", "model", "branch", "run"):
        history[f"usage by {by}"] = (await service.get(f"/v1/usage?group_by={by}"))["data"]
    for run in history["runs"]:
        path = f"/v1/runs/{run['id']}"
        views = [f"{path}/events?limit=1000{view}" for view in ("", "&view=callbacks", "&view=partial")]
        for at in (*views, f"{path}/attempts", f"{path}/text"):
            answer = await service.http.get(at)
            history[at] = (answer.status_code, _timeless(answer.json()))
    return history


def _timeless(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "request_id"}
