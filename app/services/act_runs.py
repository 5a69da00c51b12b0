"""Runs of act: tool calls alone."""

from __future__ import annotations

from typing import Any

from app.core.json_text import dumps
from app.core.lifecycle import faults
from app.core.operate.params import BranchSettings, offered_tools, resolve_act
from app.core.operate.request import ActRequest
from app.ports.storage import BranchState, RunRecord
from app.ports.tool import ToolCatalog
from app.services.act import Acting, ActionBatch, CallsWait, Proposals, ToolsFailed
from app.services.earlier import Earlier
from app.services.execution import Execution
from app.services.oversight import Overseer
from app.services.plan import Plan


def settings_of(branch: BranchState) -> BranchSettings:
    """What the branch says about its runs, as core takes it."""
    tools = branch.tools if isinstance(branch.tools, bool) else tuple(branch.tools)
    return BranchSettings(branch.chat_model, tools, branch.parse_model)


class ActPlanner:
    """Plans runs of kind `act`."""

    kind = "act"
    converses = False

    def __init__(self, catalog: ToolCatalog, acting: Acting, overseer: Overseer) -> None:
        self._catalog = catalog
        self._acting = acting
        self._overseer = overseer

    def read(self, body: Any) -> ActRequest:
        """The request as it was stored."""
        return ActRequest.model_validate(body)

    async def plan(self, run: RunRecord, branch: BranchState, request: ActRequest) -> Plan:
        """See `plan.Planner`."""
        params = resolve_act(request)
        tools = await self._catalog.tools(run.project_id)
        offered = offered_tools(settings_of(branch).tools, tools)
        oversight = await self._overseer.over(run, branch)
        batch: ActionBatch | None = None

        def calls(execution: Execution, earlier: Earlier) -> ActionBatch:
            proposals = Proposals(params.calls, tools, offered, oversight=oversight, earlier=earlier)
            return self._acting.batch(execution, proposals, params.batch)

        def propose(execution: Execution) -> None:
            nonlocal batch
            batch = calls(execution, Earlier())
            batch.propose()

        async def act(execution: Execution, batch: ActionBatch) -> None:
            try:
                results = await batch.carry_out()
            except ToolsFailed as failure:
                execution.finish("failed", error=failure.error())
            except CallsWait as wait:
                execution.wait("{}", wait.until, wait.reason)
            else:
                finish_acted(execution, dumps(results).decode())

        async def perform(execution: Execution) -> None:
            assert batch is not None
            await act(execution, batch)

        async def recover(execution: Execution, earlier: Earlier) -> None:
            await act(execution, calls(execution, earlier))

        async def go_on(execution: Execution, resume: Any, earlier: Earlier) -> None:
            await recover(execution, earlier)

        return Plan(perform, recover, propose=propose, go_on=go_on)


def finish_acted(execution: Execution, result: str) -> None:
    """End a run after its action phase; one that was stopped in it is cancelled, or failed if it was late."""
    source = execution.stop.source
    if source is None:
        execution.finish("completed", result=result)
        return
    late = source == "timeout"
    error = {
        "code": faults.DEADLINE.code if late else "RUN_CANCELLED",
        "message": "the time for the run is over" if late else f"stopped by {source} while its tools ran",
        "category": "provider",
        "retryable": False,
    }
    execution.finish("failed" if late else "cancelled", error=error)
