"""Rounds of chaos: for a while clients want things and troubles befall; then all is looked at."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg

from tests.system.chaos.anywhere import anywhere
from tests.system.chaos.clients import Client
from tests.system.chaos.conversations import OF_BRANCHES
from tests.system.chaos.evidence import gathered
from tests.system.chaos.invariants import OF_RUNS
from tests.system.chaos.logs import LogTail
from tests.system.chaos.places import OF_PLACES
from tests.system.chaos.report import Round
from tests.system.chaos.troubles import Trouble, roles, schedule
from tests.system.chaos.voters import OF_VOTERS
from tests.system.chaos.wishes import Wish, wish
from tests.system.chaos.workers import Workers
from tests.system.chaos.world import REPLICAS, World, world

ROUND_S = 60.0
BRANCHES = 6
AT_ONCE = 24
"""Most wishes that are being seen to at the same time; those on one branch queue."""
_PAUSE_S = (0.0, 0.4)
_LOOK_S = 0.3
STANDSTILL_S = 180.0
"""After which time without an end of anything, while all is well, what is left counts as stuck."""


async def chaos(folder: Path, seed: str, seconds: float, *, told: Callable[[str], None]) -> list[Round]:
    """Rounds for about so many seconds; `told` is told the troubles of each before it begins."""
    found: list[Round] = []
    async with world(folder, roles(f"{seed}-1")) as made:
        tails = [LogTail(replica.log) for replica in made.replicas]
        left_s = seconds
        while left_s > 0:
            one = await _round(made, f"{seed}-{len(found) + 1}", min(left_s, ROUND_S), tails, told)
            found.append(one)
            left_s -= ROUND_S
    return found


async def _round(
    made: World, seed: str, seconds: float, tails: Sequence[LogTail], told: Callable[[str], None]
) -> Round:
    servers = made.servers
    servers.begin(seed)
    made.complaints.clear()
    one = Round(seed, schedule(seed, seconds, REPLICAS), roles(seed))
    told(one.plan)
    await made.cast(one.roles)
    draw = random.Random(f"clients {seed}")
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(anywhere(lambda: made.urls, draw))
        client = Client(http, hit=made.hit, epochs=made.epochs)
        workers = Workers(http, servers.tools, draw, client.note)
        branches = [await client.branch(governed=n % 2 == 0) for n in range(BRANCHES)]
        wishes: list[Wish] = []
        working = asyncio.create_task(workers.work())
        seeing_to = asyncio.create_task(_wish(client, branches, wishes, seed, seconds))
        stack.callback(working.cancel)
        stack.callback(seeing_to.cancel)
        async with asyncio.TaskGroup() as group:
            for trouble in one.troubles:
                group.create_task(_befall(made, trouble))
        well_at = time.monotonic()
        one.violations += await _stuck(made.database_url, seeing_to, wishes)
        if not one.violations:
            await seeing_to
        if working.done():
            working.result()
    one.settled_s = time.monotonic() - well_at
    seen = await gathered(made.urls[0], made.database_url, servers, branches, wishes, workers.approved)
    one.count(seen, servers.model.fared + Counter({f"tool {k}": n for k, n in servers.tools.fared.items()}))
    one.violations += [*client.odd, *made.complaints, *(bug for tail in tails for bug in tail.bugs())]
    for invariant in (*OF_RUNS, *OF_BRANCHES, *OF_PLACES, *OF_VOTERS):
        one.violations += [f"{invariant.__name__}: {fault}" for fault in invariant(seen)]
    return one


async def _befall(made: World, trouble: Trouble) -> None:
    await asyncio.sleep(trouble.at_s)
    await made.befall(trouble)


async def _wish(client: Client, branches: list[str], wishes: list[Wish], seed: str, seconds: float) -> None:
    """Want things for so long, and see to the last of them."""
    draw = random.Random(f"wishes {seed}")
    room = asyncio.Semaphore(AT_ONCE)
    ends_at = asyncio.get_running_loop().time() + seconds

    async def see_to(wanted: Wish) -> None:
        try:
            await client.see_to(wanted)
        finally:
            room.release()

    async with asyncio.TaskGroup() as group:
        while asyncio.get_running_loop().time() < ends_at:
            await room.acquire()
            wanted = wish(draw, branches)
            wishes.append(wanted)
            group.create_task(see_to(wanted))
            await asyncio.sleep(draw.uniform(*_PAUSE_S))


async def _stuck(database_url: str, seeing_to: asyncio.Task[None], wishes: Sequence[Wish]) -> list[str]:
    """What comes to no end although all is well again; nothing when every wish was seen to."""
    loop = asyncio.get_running_loop()
    last, since = (-1, -1), loop.time()
    connection = await asyncpg.connect(database_url)
    try:
        left = 1
        # A request that its client gave up on may have been accepted: there may be runs that nobody follows.
        while left or not seeing_to.done():
            await asyncio.sleep(_LOOK_S)
            left = await connection.fetchval("SELECT count(*) FROM runs WHERE ended_at IS NULL")
            now = left, sum(wish.seen_to for wish in wishes)
            if now != last:
                last, since = now, loop.time()
            if loop.time() - since > STANDSTILL_S:
                rows = await connection.fetch("SELECT id, status FROM runs WHERE ended_at IS NULL")
                runs = [f"the run {row['id']} is {row['status']}" for row in rows]
                return runs + [f"{wish.task} is not seen to" for wish in wishes if not wish.seen_to]
    finally:
        await connection.close()
    return []
