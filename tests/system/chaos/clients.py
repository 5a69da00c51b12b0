"""Clients of the replicas: they want runs, repeat themselves, change their minds, and note all they hear."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx

from tests.support.service import frames
from tests.system.chaos.flaky import ECHO
from tests.system.chaos.servers import MODEL
from tests.system.chaos.wishes import ENDING, Wish

WAIT_S = 1
ASKS: Mapping[str, Any] = {"rules": [{"when": f"function == '{ECHO}'", "effect": "escalate"}]}
"""A gate that has people decide about one tool."""
_PAUSE_S = 0.05


class Client:
    """Sees to wishes, as many at once as it is given."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        hit: Callable[[], Awaitable[object]] | None = None,
        epochs: Callable[[str], Awaitable[Mapping[str, int]]] | None = None,
    ) -> None:
        """`hit` returns when a replica is about to be hit; `epochs` tells those of a run and of the run whose
        place it takes.
        """
        self._http = http
        self._hit = hit
        self._epochs = epochs
        self.odd: list[str] = []
        """Answers that nobody should get."""

    async def branch(self, *, governed: bool) -> str:
        """Make a branch; its id."""
        body = {"chat_model": MODEL, **({"gate": ASKS} if governed else {})}
        answer = await self._http.post("/v1/branches", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def see_to(self, wish: Wish) -> None:
        """Have it carried out, and follow it to its end, however long that takes."""
        run_id = await self._submit(wish)
        if run_id is not None:
            if wish.if_busy in ENDING:
                await self._told_to_end(wish, run_id, own=False)
            await asyncio.gather(
                self._follow(wish, run_id), self._change_mind(wish, run_id), self._repeat(wish)
            )
        wish.seen_to = True

    async def _submit(self, wish: Wish) -> str | None:
        """The run's id; None when the branch was busy and the wish was not to be queued."""
        wish.sent_at = time.monotonic()
        told = await asyncio.gather(
            self._send(wish), *(self._post(wish, "respond-async") for _ in range(wish.twins))
        )
        return next(filter(None, told), None)

    async def _send(self, wish: Wish) -> str | None:
        if wish.form == "stream":
            await self._stream(wish, "POST", wish.path, {"Idempotency-Key": wish.task}, json=wish.body)
            if wish.run_ids:
                return next(iter(wish.run_ids))
        return await self._post(wish, f"wait={WAIT_S}" if wish.form == "wait" else "respond-async")

    async def _post(self, wish: Wish, prefer: str) -> str | None:
        known = bool(wish.run_ids)
        headers = {"Idempotency-Key": wish.task, "Prefer": prefer}
        answer = await self._http.post(wish.path, headers=headers, json=wish.body)
        if answer.status_code not in (200, 202):
            self._refused(wish, answer, known=known)
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

    def _refused(self, wish: Wish, answer: httpx.Response, *, known: bool) -> None:
        """`known` says whether the run had been told of when the request was sent."""
        busy = answer.status_code == 409 and answer.json()["code"] == "branch_busy"
        if busy and wish.if_busy == "reject" and not known:
            wish.refused = True
        else:
            self.note(answer.request.method, answer.request.url.path, answer.status_code, answer.text)

    async def _repeat(self, wish: Wish) -> None:
        """Ask for the same again, of two replicas at once, and then for something else under its key."""
        if wish.repeat_after_s is not None:
            await asyncio.sleep(wish.repeat_after_s)
            await asyncio.gather(*(self._post(wish, "respond-async") for _ in range(2)))
            body = {**wish.body, "if_busy": "enqueue" if wish.if_busy == "reject" else "reject"}
            answer = await self._http.post(wish.path, headers={"Idempotency-Key": wish.task}, json=body)
            if answer.status_code != 422:
                self.note(wish.task, "was taken for another request:", answer.status_code, answer.text)

    async def _change_mind(self, wish: Wish, run_id: str) -> None:
        if wish.cancel_after_s is None or (wish.cancel_amid and not await self._hit_before_the_end(wish)):
            return
        await asyncio.sleep(wish.cancel_after_s)
        wish.cancel_sent = True
        answer = await self._http.post(f"/v1/runs/{run_id}/cancel")
        if answer.status_code in (200, 202):
            await self._told_to_end(wish, run_id, own=True)
        if answer.status_code == 200:
            wish.ends_told.append(answer.json()["status"])
        elif answer.status_code not in (202, 409):
            self._refused(wish, answer, known=True)

    async def _told_to_end(self, wish: Wish, run_id: str, *, own: bool) -> None:
        epochs = {} if self._epochs is None else await self._epochs(run_id)
        wish.to_end |= {id: epoch for id, epoch in epochs.items() if (id == run_id) is own}

    async def _hit_before_the_end(self, wish: Wish) -> bool:
        """Wait until a replica is hit, perhaps the one with the run; False when the run ends first."""
        if self._hit is None:
            return False
        hit = asyncio.ensure_future(self._hit())
        try:
            while not (hit.done() or wish.heard_the_end):
                await asyncio.wait({hit}, timeout=_PAUSE_S)
            return hit.done()
        finally:
            hit.cancel()

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
        known = method != "POST" or bool(wish.run_ids)
        cut_after_s = wish.cut_after_s.pop() if wish.cut_after_s else None
        accepts = {"Accept": "text/event-stream", **headers}
        try:
            async with (
                asyncio.timeout(cut_after_s),
                self._http.stream(method, path, headers=accepts, json=json) as answer,
            ):
                await self._hear(wish, answer, known=known)
        except (TimeoutError, httpx.TransportError):
            await asyncio.sleep(_PAUSE_S)

    async def _hear(self, wish: Wish, answer: httpx.Response, *, known: bool) -> None:
        if answer.status_code == 204:
            wish.heard_the_end = True
            return
        if answer.status_code != 200:
            await answer.aread()
            self._refused(wish, answer, known=known)
            return
        self._accepted(wish, answer.headers)
        wish.streams += 1
        async for frame in frames(answer.aiter_lines()):
            if frame.event == "stream.end":
                wish.heard_the_end = True
                return
            if frame.id != f"{frame.data['run_id']}:{frame.data['seq']}":
                self.note(answer.request.url, "has a frame with the id", frame.id, "for", frame.data["seq"])
            wish.events.append(frame.data)

    def note(self, *told: object) -> None:
        """Remember an answer that nobody should get."""
        self.odd.append(" ".join(map(str, told))[:500])
