"""Those whom runs wait for: people who decide about calls, and clients' programs that carry calls out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from tests.support.clients import Clients
from tests.system.chaos.flaky import FlakyTools

LEASE_S = 1.0
"""For how long a program has a call to itself."""
AT_ONCE = 2
_PAUSE_S = 0.2


class Workers:
    """Sees to all that waits on some branches, not always well."""

    def __init__(
        self, http: httpx.AsyncClient, tools: FlakyTools, draw: random.Random, odd: Callable[..., None]
    ) -> None:
        """`odd` is told of answers that nobody should get."""
        self._http = http
        self._clients = Clients(http)
        self._tools = tools
        self._draw = draw
        self._odd = odd
        self.approved: set[str] = set()
        """The function calls that somebody has, or may have, approved."""

    async def work(self) -> None:
        """For ever, several of a kind at once."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._run_errands())
                group.create_task(self._approve())

    async def _run_errands(self) -> None:
        while True:
            calls = await self._clients.work(status="waiting")
            for call in self._draw.sample(calls, len(calls)):
                await self._carry_out(call)
            await asyncio.sleep(_PAUSE_S)

    async def _approve(self) -> None:
        while True:
            approvals = await self._pending()
            for approval in self._draw.sample(approvals, len(approvals)):
                await self._decide(approval["function_call_id"])
            await asyncio.sleep(_PAUSE_S)

    async def _carry_out(self, call: Mapping[str, Any]) -> None:
        claimed = await self._clients.claim(call, lease_s=LEASE_S)
        if self._draw.random() < 0.15 or not self._fits(claimed):
            return  # another program's, or ours that forgets about it
        token = claimed.json()["lease_token"]
        output = {"number": self._tools.give(call["call_id"])}
        self._fits(await self._clients.bring(call, output=output, lease_token=token))

    async def _pending(self) -> list[dict[str, Any]]:
        answer = await self._http.get("/v1/approvals", params={"status": "pending", "limit": 1000})
        return list(answer.json()["data"]) if self._fits(answer) else []

    async def _decide(self, call_id: str) -> None:
        decision = "approve" if self._draw.random() < 0.8 else "deny"
        if decision == "approve":
            self.approved.add(call_id)
        path = f"/v1/function-calls/{call_id}/decision"
        self._fits(await self._http.post(path, json={"decision": decision}))

    def _fits(self, answer: httpx.Response) -> bool:
        """Whether it is a success; what others have done before is no fault."""
        if answer.status_code not in (200, 409):
            self._odd(answer.request.method, answer.request.url.path, answer.status_code, answer.text)
        return answer.status_code == 200
