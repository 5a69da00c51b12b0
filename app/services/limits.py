"""Hold keys and projects to their limits on requests; set and show all of their limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import structlog

from app.core.access import Principal, Scope
from app.core.errors import NotFound, Unavailable
from app.core.limits.quota import LimitName, Quota, QuotaLimits, Standing
from app.core.limits.refusal import RequestLimitReached
from app.core.limits.share import Share, Spent
from app.ports.ambient import Clock
from app.ports.quotas import Quotas, Shares, Used

TICK_S: Final = 1.0
"""How often shares are looked through for what is not used."""
LOOK_TICKS: Final = 5
"""After how many of these it is looked up whether usage has to be counted."""

log = structlog.get_logger("limits")


class Meter:
    """Lets requests in, as many as keys and projects may make in a minute over all processes.

    A process asks for a part of the minute's requests, and lets in as many of them without asking again.
    """

    def __init__(self, shares: Shares, clock: Clock) -> None:
        self._shares = shares
        self._clock = clock
        self._held: dict[UUID, Share] = {}
        self._asking: dict[UUID, asyncio.Task[bool]] = {}

    async def admit(self, quotas: Sequence[Quota]) -> list[Standing]:
        """Count a request, and tell where its limits stand. Raises RequestLimitReached, Unavailable."""
        standings: list[Standing] = []
        spent: list[Share] = []
        for quota in quotas:
            if quota.limits.requests_per_minute is None:
                continue
            share = self._held.get(quota.id)
            if share is None:
                share = self._held[quota.id] = Share(quota.limits.requests_per_minute)
            verdict = await self._spend(quota, share)
            standing = self._standing(quota, share)
            if verdict is Spent.NO:
                # What the key has left is not used up by what its project refuses.
                for other in spent:
                    other.unspend()
                raise RequestLimitReached(standing)
            spent.append(share)
            standings.append(standing)
        return standings

    async def _spend(self, quota: Quota, share: Share) -> Spent:
        while (verdict := share.spend(self._clock.mono_ms())) is Spent.ASK:
            share.waiting += 1
            try:
                asking = self._asking.get(quota.id)
                if asking is None:
                    asking = self._asking[quota.id] = asyncio.create_task(self._ask(quota.id, share))
                # A request that is called off must not take what the others wait for with it.
                limited = await asyncio.shield(asking)
            finally:
                share.waiting -= 1
            if not limited:
                return Spent.YES
        return verdict

    async def _ask(self, quota_id: UUID, share: Share) -> bool:
        """Have a further part; False where there is no such limit any more."""
        try:
            asked_ms = self._clock.mono_ms()
            grant = await self._shares.take(quota_id, share.wanted())
            if grant is not None:
                share.add(grant, asked_ms)
            return grant is not None
        finally:
            del self._asking[quota_id]

    def _standing(self, quota: Quota, share: Share) -> Standing:
        resets_s = share.resets_s(self._clock.mono_ms())
        return Standing(quota.owner, LimitName.REQUESTS, share.quota, share.used, resets_s)

    async def tidy(self) -> None:
        """Give back what was not used of late, and forget minutes that are over. Raises Unavailable."""
        now_ms = self._clock.mono_ms()
        for quota_id in [id for id, share in self._held.items() if share.is_over(now_ms)]:
            del self._held[quota_id]
        unused = {id: rest for id, share in self._held.items() if (rest := share.rest()) is not None}
        if unused:
            await self._shares.give_back(unused)


class Limits:
    """The limits of keys and projects: whoever governs a project's keys sets them."""

    def __init__(self, quotas: Quotas, meter: Meter, changed: Callable[[], None]) -> None:
        """`changed` is called when limits were set here."""
        self._quotas = quotas
        self._meter = meter
        self._changed = changed
        self._sets = 0
        self.counts_usage = True
        """Whether what attempts use has to be counted: some limit is on that, or it is not known yet."""

    async def admit(self, who: Principal) -> list[Standing]:
        """Count a request; see `Meter.admit`."""
        return await self._meter.admit(who.quotas)

    async def own(self, who: Principal) -> list[Used]:
        """The limits of whoever asks: of the key, if there is one, and of its project."""
        keys = [None] if who.key_id is None else [who.key_id, None]
        return [await self._quotas.used(who.project_id, key_id) for key_id in keys]

    async def used(self, who: Principal, project_id: UUID, key_id: UUID | None) -> Used:
        """The limits of a project, or of one of its keys: one's own, or any that one administers.

        Raises NotFound, Forbidden.
        """
        if not (who.administers(project_id) or project_id == who.project_id):
            raise _no_project()
        if key_id not in (None, who.key_id) and not who.administers(project_id):
            who.need(Scope.ADMIN, Scope.OPERATOR)
        return await self._quotas.used(project_id, key_id)

    async def set(self, who: Principal, project_id: UUID, key_id: UUID | None, limits: QuotaLimits) -> Used:
        """Put limits in the place of those that there are. Raises NotFound, Forbidden."""
        if not who.administers(project_id):
            if project_id != who.project_id:
                raise _no_project()
            who.need(Scope.ADMIN, Scope.OPERATOR)
        used = await self._quotas.set(project_id, key_id, limits, by=who.key_id)
        self._sets += 1
        self.counts_usage = self.counts_usage or limits.counts_usage
        self._changed()
        return used

    async def _look(self) -> None:
        sets = self._sets
        found = await self._quotas.counts_usage()
        if sets == self._sets:  # else it may be old already
            self.counts_usage = found

    async def work(self) -> None:
        """Give back unused shares, and keep `counts_usage` true; ends by cancellation."""
        ticks = 0
        while True:
            try:
                if ticks % LOOK_TICKS == 0:
                    await self._look()
                await self._meter.tidy()
            except Unavailable:
                pass  # the recorder says so
            except Exception:
                log.exception("round failed")
            ticks += 1
            await asyncio.sleep(TICK_S)


def _no_project() -> NotFound:
    return NotFound("There is no such project.")
