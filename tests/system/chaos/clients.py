"""Clients of the replicas: they ask any of them, go elsewhere when one is silent, and note all they hear."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any

import httpx

from tests.support.service import frames
from tests.system.chaos.wishes import Wish
from tests.system.chaos.world import World

SILENCE_S = 4.0
"""How long a client waits for a sign of life before it asks another replica; heartbeats come every second."""
GIVE_UP_S = 300.0
"""How long it tries. Who comes to that has found a fault: by then all replicas have been well for long."""
WAIT_S = 3
_PAUSE_S = 0.05
_LATER = (429, 503)
"""Statuses that ask to come again."""


class Client:
    """Sees to wishes, as many at once as it is given."""

    def __init__(self, world: World, http: httpx.AsyncClient, draw: random.Random) -> None:
        self._world = world
        self._http = http
        self._draw = draw
        self.odd: list[str] = []
        """Answers that nobody should get."""

    async def see_to(self, wish: Wish) -> None:
        """Have it carried out, and follow it to its end."""
        try:
            async with asyncio.timeout(GIVE_UP_S):
                run_id = await self._submit(wish)
                if run_id is not None:
                    await asyncio.gather(
                        self._follow(wish, run_id), self._change_mind(wish, run_id), self._repeat(wish)
                    )
        except TimeoutError:
            self._odd("given up after", GIVE_UP_S, "s:", wish.kind, wish.task, *wish.run_ids)

    async def branch(self) -> str:
        """Make a branch; its id."""
        answer = await self._answer("POST", "/v1/branches", json={"chat_model": "flaky"})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def _submit(self, wish: Wish) -> str | None:
        """The run's id; None when the branch was busy and the wish was not to be queued."""
        headers = {"Idempotency-Key": wish.task}
        wish.sent_at = time.monotonic()
        if wish.form == "stream":
            await self._stream(wish, "POST", wish.path, headers, json=wish.body)
            if wish.run_ids:
                return next(iter(wish.run_ids))
        prefer = f"wait={WAIT_S}" if wish.form == "wait" else "respond-async"
        return await self._post(wish, prefer)

    async def _post(self, wish: Wish, prefer: str) -> str | None:
        headers = {"Idempotency-Key": wish.task, "Prefer": prefer}
        answer = await self._answer("POST", wish.path, headers=headers, json=wish.body)
        if answer.status_code == 409 and answer.json()["code"] == "branch_busy" and "if_busy" in wish.body:
            wish.refused = True
            return None
        if answer.status_code not in (200, 202):
            self._odd("POST", wish.path, answer.status_code, answer.text)
            return None
        run = answer.json()
        self._accepted(wish, answer.headers)
        if answer.status_code == 200:
            wish.ends_told.append(run["status"])
        return str(run["id"])

    def _accepted(self, wish: Wish, headers: httpx.Headers) -> None:
        wish.accepted_at = wish.accepted_at or time.monotonic()
        wish.run_ids.add(headers["run-id"])
        wish.replays += "idempotency-replayed" in headers

    async def _repeat(self, wish: Wish) -> None:
        """Ask for the same again, of two replicas at once."""
        if wish.repeat_after_s is not None:
            await asyncio.sleep(wish.repeat_after_s)
            await asyncio.gather(*(self._post(wish, "respond-async") for _ in range(2)))

    async def _change_mind(self, wish: Wish, run_id: str) -> None:
        if wish.cancel_after_s is None:
            return
        await asyncio.sleep(wish.cancel_after_s)
        wish.cancel_sent = True
        path = f"/v1/runs/{run_id}/cancel"
        answer = await self._answer("POST", path)
        if answer.status_code == 200:
            wish.ends_told.append(answer.json()["status"])
        elif answer.status_code not in (202, 409):
            self._odd("POST", path, answer.status_code, answer.text)

    async def _follow(self, wish: Wish, run_id: str) -> None:
        """Hear all of the log, on as many streams as it takes."""
        path = f"/v1/runs/{run_id}/events"
        while not wish.heard_the_end:
            last = f"{run_id}:{wish.events[-1]['seq']}" if wish.events else None
            await self._stream(wish, "GET", path, {} if last is None else {"Last-Event-ID": last})

    async def _stream(
        self, wish: Wish, method: str, path: str, headers: Mapping[str, str], json: Any = None
    ) -> None:
        """One event stream, until it ends, breaks, or is left."""
        cut_after_s = wish.cut_after_s.pop() if wish.cut_after_s else None
        accepts = {"Accept": "text/event-stream", **headers}
        try:
            async with (
                asyncio.timeout(cut_after_s),
                self._http.stream(
                    method, self._somewhere(path), headers=accepts, json=json, timeout=SILENCE_S
                ) as answer,
            ):
                await self._hear(wish, answer, f"{method} {path}")
        except (TimeoutError, httpx.TransportError):
            wish.cuts += 1
            await asyncio.sleep(_PAUSE_S)

    async def _hear(self, wish: Wish, answer: httpx.Response, asked: str) -> None:
        if answer.status_code == 204:
            wish.heard_the_end = True
        if answer.status_code in (*_LATER, 409):
            await asyncio.sleep(_PAUSE_S)
            return
        if answer.status_code != 200:
            if answer.status_code != 204:
                self._odd(asked, "", answer.status_code, (await answer.aread()).decode())
            return
        self._accepted(wish, answer.headers)
        async for frame in frames(answer.aiter_lines()):
            if frame.event == "stream.end":
                wish.heard_the_end = True
                return
            if frame.id != f"{frame.data['run_id']}:{frame.data['seq']}":
                self._odd(asked, "has a frame with the id", frame.id, "for", frame.data["seq"])
            wish.events.append(frame.data)

    async def _answer(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, json: Any = None
    ) -> httpx.Response:
        """The first answer that any replica gives which does not ask to come again."""
        while True:
            try:
                answer = await self._http.request(
                    method, self._somewhere(path), headers=headers, json=json, timeout=SILENCE_S
                )
                if answer.status_code not in _LATER and not _in_use(answer):
                    return answer
            except httpx.TransportError:
                pass
            await asyncio.sleep(_PAUSE_S)

    def _somewhere(self, path: str) -> str:
        return self._draw.choice(self._world.urls) + path

    def _odd(self, *told: object) -> None:
        self.odd.append(" ".join(map(str, told))[:500])


def _in_use(answer: httpx.Response) -> bool:
    """Whether another request with the same key is under way at this moment."""
    return answer.status_code == 409 and answer.json()["code"] == "conflict"
