"""Ask the providers of context before a model is asked, and wait for them no longer than the run lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from app.core.operate.params import OperateParams
from app.ports.context import ContextProviders, Turn
from app.services.execution import Execution


def turn_of(execution: Execution, params: OperateParams) -> Turn:
    """The run, as providers see it."""
    run = execution.run
    return Turn(run.project_id, run.branch_id, run.id, params.instruction, params.guidance, params.context)


async def provided(
    providers: ContextProviders, execution: Execution, params: OperateParams, left_s: float | None
) -> Mapping[str, Any]:
    """What they add; nothing when the run is stopped, or its time over, before all of them are done."""
    if not providers:
        return {}
    asking = asyncio.create_task(_provide(providers, turn_of(execution, params)))
    try:
        await asyncio.wait(
            {asking, execution.stop.requested},  # type: ignore[type-var]
            timeout=left_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        return asking.result() if asking.done() else {}
    finally:
        asking.cancel()


async def _provide(providers: ContextProviders, turn: Turn) -> Mapping[str, Any]:
    return await providers.provide(turn)
