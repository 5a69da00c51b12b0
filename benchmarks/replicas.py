"""How throughput grows with processes of the service over one database, and what each part of it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from benchmarks.client import load
from benchmarks.figures import Figures, Scale
from benchmarks.loads import PLAIN
from benchmarks.processes import cpu_s
from benchmarks.stage import Stage, another
from benchmarks.targets import CLIENTS, Branchline

COUNTS: Final = (1, 2, 3)
"""Processes of the service."""
_MODEL: Final = f"fake-t{PLAIN}"


async def replicas(on: Stage, scale: Scale) -> Figures:
    """Runs per second, and CPU per run, with as many clients over all processes as over one alone."""
    figures: Figures = {}
    for count in COUNTS:
        async with AsyncExitStack() as stack:
            more = [
                await stack.enter_async_context(another(on, f"replica-{number}"))
                for number in range(1, count)
            ]
            services = [on.branchline, *(Branchline(address, on.direct.address) for address, _ in more)]
            pids = [on.service_pid, *(pid for _, pid in more)]
            figures |= _named(count, await _loaded(on, services, pids, scale))
    return figures


async def _loaded(
    on: Stage, services: Sequence[Branchline], pids: Sequence[int], scale: Scale
) -> dict[str, float]:
    share = scale.many_clients // len(services)
    asked = []
    for service in services:
        await service.prepare(share, _MODEL)
        asked.append([service.question(_MODEL, stream=False) for _ in range(share)])
    service_s, postgres_s = cpu_s(pids), on.postgres_cpu_s()
    outcomes = await asyncio.gather(
        *(
            load(service.address, requests, clients=CLIENTS // len(services))
            for service, requests in zip(services, asked, strict=True)
        )
    )
    service_s, postgres_s = cpu_s(pids) - service_s, on.postgres_cpu_s() - postgres_s
    for outcome in outcomes:
        for answer in outcome.answers:
            services[0].check(answer, tokens=PLAIN, stream=False)
    runs = share * len(services)
    return {
        "per_s": runs / max(outcome.elapsed_s for outcome in outcomes),
        "service_us": service_s / runs * 1e6,
        "postgres_us": postgres_s / runs * 1e6,
    }


def _named(count: int, figures: dict[str, float]) -> Figures:
    return {f"branchline.replicas{count}_{name}": value for name, value in figures.items()}
