"""The client's side of tools that it carries out itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from tests.support.polling import until_true

ANY: dict[str, Any] = {"type": "object"}


class Clients:
    """A program of a client's, with its key."""

    def __init__(self, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> None:
        self.http = http
        self.headers = dict(headers or {})

    async def tool(self, name: str, **more: Any) -> str:
        """Register a tool; its name."""
        body = {"kind": "client", "parameters": ANY, **more}
        answer = await self.http.put(f"/v1/tools/{name}", json=body, headers=self.headers)
        assert answer.status_code in (200, 201), answer.text
        return name

    async def waiting(self, branch: str, *requests: Any, **body: Any) -> dict[str, Any]:
        """A run of act that has come to wait."""
        body = {"requests": list(requests), **body}
        answer = await self.http.post(f"/v1/branches/{branch}/act", json=body, headers=self.headers)
        assert answer.status_code == 202, answer.text
        run: dict[str, Any] = answer.json()
        assert run["status"] == "waiting"
        return run

    async def work(self, **filters: Any) -> list[dict[str, Any]]:
        """Calls to be carried out, the oldest first."""
        asked = {"order": "asc", "limit": 1000, **filters}
        answer = await self.http.get("/v1/client-calls", params=asked, headers=self.headers)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["data"])

    async def claim(self, call: Mapping[str, Any], **body: Any) -> httpx.Response:
        """Ask for a lease."""
        path = f"/v1/function-calls/{call['id']}/claim"
        return await self.http.post(path, json=body, headers=self.headers)

    async def leased(self, call: Mapping[str, Any], **body: Any) -> str:
        """The token of a lease that is given."""
        answer = await self.claim(call, **body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["lease_token"])

    async def bring(self, call: Mapping[str, Any], **body: Any) -> httpx.Response:
        """Say what came of a call."""
        path = f"/v1/function-calls/{call['id']}/result"
        return await self.http.post(path, json=body, headers=self.headers)

    async def brought(self, call: Mapping[str, Any], output: Any = "done", **body: Any) -> None:
        """The same, and it counts."""
        answer = await self.bring(call, output=output, **body)
        assert answer.status_code == 200, answer.text

    async def next_of(self, run_id: str, known: int) -> dict[str, Any]:
        """The newest call of a run, once it has more than it had."""
        found: list[dict[str, Any]] = []

        async def more() -> bool:
            found[:] = await self.work(run_id=run_id)
            return len(found) > known

        await until_true(more)
        return found[-1]


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a problem."""
    return answer.status_code, answer.json()["code"]
