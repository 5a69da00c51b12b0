"""Run what was chosen in short blocks, round after round, the order turned about each time.

The speed of a shared machine changes by half from one minute to the next. What is compared is therefore
measured within seconds of each other, and a figure is the median over rounds.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks import floors, parts, peer, schemas
from benchmarks.client import LoadFailed
from benchmarks.figures import Figures, Scale
from benchmarks.hangups import hangups
from benchmarks.loads import LOADS, OWN_LOADS, Load, OwnLoad
from benchmarks.long_runs import long_runs
from benchmarks.processes import cpu_s, machine_busy_s
from benchmarks.record import Stored, check_logs, stored
from benchmarks.replicas import replicas
from benchmarks.stage import Stage, stage

BLOCK_S: Final = 120.0
"""Longest that one block may take."""


@dataclass(frozen=True, slots=True)
class Block:
    """Something measured in one go, on its own."""

    name: str
    work: Callable[[Scale], Figures]
    usual: bool = True
    """Whether it is measured without being named."""


@dataclass(frozen=True, slots=True)
class StagedBlock:
    """The same, of something that needs the stage."""

    name: str
    work: Callable[[Stage, Scale], Coroutine[Any, Any, Figures]]
    usual: bool = True
    """Whether it is measured without being named."""


@dataclass(slots=True)
class Measured:
    """What came of all rounds."""

    rounds: int
    samples: dict[str, list[float]] = field(default_factory=dict)
    foreign_cores: float = float("nan")
    """Cores that were busy with other things meanwhile."""

    def add(self, figures: Figures) -> None:
        """Take one round's figures."""
        for name, value in figures.items():
            self.samples.setdefault(name, []).append(value)


async def measure(scale: Scale, only: Collection[str] = (), say: Callable[[str], None] = print) -> Measured:
    """All usual blocks, or those named in `only`.

    Raises LoadFailed, ChildFailed, EmbeddedError, TimeoutError.
    """
    chosen = [block for block in BLOCKS if block.name in only or (not only and block.usual)]
    measured = Measured(scale.rounds)
    async with AsyncExitStack() as stack:
        on: Stage | None = None
        if any(isinstance(block, StagedBlock) for block in chosen):
            say("Starting Postgres, the fake model and the service ...")
            on = await stack.enter_async_context(stage())
            measured.add({"branchline.idle_mb": on.service_mb()})
            await _warm_up(on, scale)
        began, busy, ours = time.monotonic(), machine_busy_s(), _ours(on)
        for number in range(scale.rounds):
            say(f"Round {number + 1} of {scale.rounds}")
            for block in chosen if number % 2 == 0 else reversed(chosen):
                measured.add(await _perform(block, on, scale))
        foreign = machine_busy_s() - busy - (_ours(on) - ours)
        measured.foreign_cores = max(0.0, foreign / (time.monotonic() - began))
        if on is not None:
            measured.add({"branchline.after_mb": on.service_mb()})
    return measured


async def _perform(block: Block | StagedBlock, on: Stage | None, scale: Scale) -> Figures:
    if isinstance(block, Block):
        return block.work(scale)
    assert on is not None
    try:
        async with asyncio.timeout(BLOCK_S):
            return await block.work(on, scale)
    except LoadFailed as failure:
        raise LoadFailed(f"{block.name}: {failure}") from None


def _ours(on: Stage | None) -> float:
    return cpu_s([os.getpid()]) if on is None else on.whole_cpu_s()


async def _warm_up(on: Stage, scale: Scale) -> None:
    for plain in LOADS[:2]:
        for target in (*on.others, on.branchline):
            await plain.prepare(target, scale)
            await plain.run(target, scale)


# The blocks.


def _staged(plain: Load) -> StagedBlock:
    """A load on everything else, the fake model itself among it, then on the service."""

    async def work(on: Stage, scale: Scale) -> Figures:
        figures: Figures = {}
        for other in on.others:
            await plain.prepare(other, scale)
            figures |= _named(other.name, await plain.run(other, scale))
        return figures | await _watched(plain, on, scale)

    return StagedBlock(plain.name, work)


def _own(own: OwnLoad) -> StagedBlock:
    async def work(on: Stage, scale: Scale) -> Figures:
        return await _watched(own, on, scale)

    return StagedBlock(own.name, work)


async def _watched(some: Load | OwnLoad, on: Stage, scale: Scale) -> Figures:
    """A load on the service: its figures, what it cost, and the proof that all of it was stored."""
    await some.prepare(on.branchline, scale)
    before = await stored(on.connection)
    service_s, postgres_s = on.service_cpu_s(), on.postgres_cpu_s()
    figures = await some.run(on.branchline, scale)
    service_s, postgres_s = on.service_cpu_s() - service_s, on.postgres_cpu_s() - postgres_s
    await check_logs(on.connection, before)
    kept = (await stored(on.connection)).since(before)
    if isinstance(some, Load):
        asked = some.count(scale)
        if (kept.runs, kept.tokens) != (asked, asked * some.tokens):
            raise LoadFailed(f"stored are {kept.runs} runs and {kept.tokens} tokens of {asked} runs")
    return _named(on.branchline.name, figures | _costs(some.name, kept, service_s, postgres_s))


def _costs(load: str, kept: Stored, service_s: float, postgres_s: float) -> Figures:
    if load == "wait32":
        return {
            "service_us_per_run": service_s / kept.runs * 1e6,
            "postgres_us_per_run": postgres_s / kept.runs * 1e6,
            "bytes_per_run": kept.bytes / kept.runs,
        }
    if load == "streams":
        return {
            "service_us_per_token": service_s / kept.tokens * 1e6,
            "postgres_us_per_token": postgres_s / kept.tokens * 1e6,
            "bytes_per_token": kept.block_bytes / kept.tokens,
            "bytes_beside_text": (kept.block_bytes - kept.text_bytes) / kept.tokens,
        }
    return {}


def _named(target: str, figures: Figures) -> Figures:
    return {f"{target}.{name}": value for name, value in figures.items()}


async def _floors(on: Stage, scale: Scale) -> Figures:
    return {
        "floor.commit_ms": await floors.commit_ms(on.connection, scale.floor),
        "floor.sync_ms": floors.sync_ms(on.folder, scale.floor),
    }


async def _long_runs(on: Stage, scale: Scale) -> Figures:
    return _named(on.branchline.name, await long_runs(on.branchline, on.connection, on.service_mb))


async def _hangups(on: Stage, scale: Scale) -> Figures:
    # Not watched: these runs are not to be completed.
    await on.branchline.prepare(2 * scale.hangups)
    return _named(on.branchline.name, await hangups(on.branchline, scale))


async def _provider(on: Stage, scale: Scale) -> Figures:
    return await parts.provider(on.direct.address)


BLOCKS: Final[Sequence[Block | StagedBlock]] = (
    StagedBlock("floors", _floors),
    *map(_staged, LOADS),
    *map(_own, OWN_LOADS),
    StagedBlock("long_runs", _long_runs),
    StagedBlock("hangups", _hangups),
    StagedBlock("provider", _provider),
    StagedBlock("replicas", replicas, usual=False),
    Block("lifecycle", parts.lifecycle),
    Block("decoding", parts.decoding),
    Block("prompt", parts.prompts),
    Block("schemas", schemas.schemas),
    Block("partial", schemas.partial),
    *([Block("peer_lifecycle", peer.lifecycle)] if peer.is_installed("l0") else []),
    *([Block("peer_act", peer.act)] if peer.is_installed("lionagi") else []),
)
