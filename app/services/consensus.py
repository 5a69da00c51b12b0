"""Runs of consensus: several models are asked the same at the same time, and one result is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.consensus.decide import Decision, decide
from app.core.consensus.request import ConsensusRequest
from app.core.events.consensus import ConsensusAnalysis, ConsensusEnd, ConsensusResolution, ConsensusStart
from app.core.events.run import ResultValidated
from app.core.json_schema import compile_schema, current_schema
from app.core.json_text import dumps
from app.core.lifecycle import faults
from app.core.lifecycle.budget import Budget
from app.core.lifecycle.options import LifecycleOptions
from app.core.messages import AssistantContent, InstructionContent
from app.core.operate.params import OperateParams
from app.core.operate.prompt import build_prompt
from app.core.prompt import Prompt
from app.ports.provider import ModelEndpoint
from app.ports.storage import BranchState, NewMessage, RunRecord
from app.services.answers import asking_of
from app.services.earlier import Earlier
from app.services.execution import Execution
from app.services.outside import Outside
from app.services.plan import Asked, Plan
from app.services.voter import Candidate, Voter


class ConsensusPlanner:
    """Plans runs of kind `consensus`."""

    kind = "consensus"
    converses = True

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def read(self, body: Any) -> ConsensusRequest:
        """The request as it was stored."""
        return ConsensusRequest.model_validate(body)

    async def plan(self, run: RunRecord, branch: BranchState, request: ConsensusRequest) -> Plan:
        """See `plan.Planner`.

        Every voter has the lifecycle of its model, as in operate. In what holds for the run as a whole, the
        number of model calls and the context, no model has a say.
        """
        outside = self._outside
        if request.response_format is not None:
            schema = current_schema(request.response_format, at="/response_format")
            request = request.model_copy(update={"response_format": schema})
        said = request.lifecycle.level() if request.lifecycle else None
        whole = outside.lifecycle_of(said, branch.lifecycle, branch.project_lifecycle)
        if whole.context:
            run.context = dumps(whole.context).decode()
        slates = [await self._slate(run, branch, request, at) for at in range(len(request.voters))]
        budget = Budget(whole.options.max_model_calls)
        consensus = _Consensus(outside, branch, request, slates, budget)
        return Plan(consensus.perform, consensus.recover, asked=consensus.asked)

    async def _slate(self, run: RunRecord, branch: BranchState, request: ConsensusRequest, at: int) -> _Slate:
        project, voter = run.project_id, request.voters[at]
        pointer = f"/voters/{at}" if isinstance(voter, str) else f"/voters/{at}/model"
        own = await self._outside.model_named(project, request.electorate[at].model, pointer)
        lifecycle = self._outside.lifecycle_of(
            request.lifecycle.level() if request.lifecycle else None,
            branch.lifecycle,
            own.lifecycle,
            branch.project_lifecycle,
        )
        endpoints = [own.endpoint]
        for index, name in enumerate(lifecycle.fallbacks):
            # A model is no fallback of its own.
            if name != own.endpoint.name:
                fallback = await self._outside.model_named(project, name, f"/lifecycle/fallbacks/{index}")
                endpoints.append(fallback.endpoint)
        return _Slate(endpoints, lifecycle.options)


@dataclass(frozen=True, slots=True)
class _Slate:
    """The models that can answer for a voter, its own first, and what governs its stream."""

    endpoints: Sequence[ModelEndpoint]
    options: LifecycleOptions


class _Consensus:
    """One consensus, from its first event to its result."""

    def __init__(
        self,
        outside: Outside,
        branch: BranchState,
        request: ConsensusRequest,
        slates: Sequence[_Slate],
        budget: Budget,
    ) -> None:
        self._outside = outside
        self._branch = branch
        self._request = request
        self._budget = budget
        indices = stream_indices([[endpoint.name for endpoint in slate.endpoints] for slate in slates])
        self._voters = [
            Voter(
                at,
                request.electorate[at].weight,
                [self._candidate(e, index) for e, index in zip(slate.endpoints, indices[at], strict=True)],
                slate.options,
                budget,
                clock=outside.clock,
                draw=outside.draw,
                decide=outside.decide,
            )
            for at, slate in enumerate(slates)
        ]
        self._began_ms = 0.0
        self._execution: Execution

    def asked(self, stream: int, fallback_index: int) -> Asked | None:
        """See `Plan.asked`."""
        return self._voters[stream].asked(fallback_index) if stream < len(self._voters) else None

    def _candidate(self, endpoint: ModelEndpoint, stream_index: int) -> Candidate:
        request, provider = self._request, self._outside.providers[endpoint.provider]
        params = OperateParams(
            request.instruction,
            endpoint.name,
            request.guidance,
            request.context,
            model_options=request.model_options,
            response_format=request.response_format,
        )
        asking = asking_of(provider, endpoint, params)
        system = self._branch.system if request.system is None else request.system

        def prompt() -> Prompt:
            return build_prompt(self._branch.history, params, asking, system=system)

        return Candidate(endpoint, provider, asking, prompt, stream_index)

    async def perform(self, execution: Execution) -> None:
        """Ask all voters, compare what they say, and end the run."""
        began = [stream.began_ms for stream in execution.past.streams.values()]
        self._execution, self._began_ms = execution, min(began, default=self._outside.clock.mono_ms())
        request, voters = self._request, self._voters
        if not execution.past.told[ConsensusStart.type]:
            execution.log.event(ConsensusStart(len(voters), request.strategy, request.conflict))
        execution.streams = len(voters)
        await _together(voter.ask(execution) for voter in voters)
        execution.run.attempts = sum(voter.machine.openings for voter in voters)
        errors = [voter.error for voter in voters if voter.error is not None]
        aborted = [voter.error for voter in voters if voter.aborted and voter.error is not None]
        if aborted:
            self._end_badly("cancelled", aborted[0])
        elif len(errors) == len(voters):
            self._end_badly("failed", self._exhausted(errors))
        else:
            # Off the event loop: long answers of many voters take a moment.
            decision = await asyncio.to_thread(self._decide)
            self._conclude(decision)

    async def recover(self, execution: Execution, _: Earlier) -> None:
        """Go on: voters that are done are not asked again."""
        self._budget.left = max(0, self._budget.left - execution.past.calls_taken)
        await self.perform(execution)

    def _decide(self) -> Decision:
        request = self._request
        schema = None if request.response_format is None else compile_schema(request.response_format)
        return decide(
            [voter.output for voter in self._voters],
            request.rules,
            fits=lambda value: schema is None or not schema.check(value),
        )

    def _conclude(self, decision: Decision) -> None:
        log, analysis = self._execution.log, decision.analysis
        log.event(
            ConsensusAnalysis(
                self._request.strategy,
                sum(output.ok for output in analysis.outputs),
                analysis.agreement_ratio,
                [list(group.members) for group in analysis.groups],
                analysis.average_similarity,
                analysis.severity,
                None if analysis.fields is None else dict(analysis.fields),
            )
        )
        if decision.status == "failed":
            self._end_badly("failed", self._disagreed(decision))
            return
        log.event(ConsensusResolution(decision.result, decision.confidence, decision.method, decision.index))
        if self._request.response_format is not None:
            log.event(ResultValidated(True, "schema", []))
            made = dict.fromkeys(name for voter in self._voters for name in voter.corrections)
            told = {"ok": True, "kind": None, "errors": [], "corrections": list(made)}
            self._execution.run.validation = dumps(told).decode()
        self._end_well(decision)

    # The end.

    def _end_well(self, decision: Decision) -> None:
        execution, run = self._execution, self._execution.run
        if decision.index is not None:
            machine = self._voters[decision.index].machine
            run.model, run.fallback_index = self._voters[decision.index].model, machine.fallback_index
            run.finish_reason, run.finish_reason_raw = machine.finish_reason, machine.finish_reason_raw
        if run.branch_id is not None:
            self._say(decision.result)
        self._over(True, decision.status, decision.confidence)
        result = {
            "result": decision.result,
            "confidence": decision.confidence,
            "status": decision.status,
            "method": decision.method,
            **self._told(decision),
        }
        execution.finish("completed", result=dumps(result).decode())

    def _end_badly(self, status: str, error: dict[str, Any]) -> None:
        self._over(False, "failed", 0.0)
        self._execution.finish(status, error=error)

    def _over(self, success: bool, status: str, confidence: float) -> None:
        took_ms = round(self._outside.clock.mono_ms() - self._began_ms)
        self._execution.log.event(ConsensusEnd(success, took_ms, status, confidence))

    def _told(self, decision: Decision) -> dict[str, Any]:
        """What a result and a disagreement both show."""
        analysis = decision.analysis
        return {
            "strategy": self._request.strategy,
            "agreement_ratio": analysis.agreement_ratio,
            "average_similarity": analysis.average_similarity,
            "severity": analysis.severity,
            "groups": [list(group.members) for group in analysis.groups],
            "outputs": [voter.outcome() for voter in self._voters],
        }

    def _exhausted(self, errors: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Every voter failed: as a whole, or because the time was over for all."""
        if all(error["code"] == faults.DEADLINE.code for error in errors):
            return errors[0]
        causes = [
            {"index": voter.index, "model": voter.model, **(voter.error or {})} for voter in self._voters
        ]
        return {
            "code": faults.EXHAUSTED.code,
            "message": f"all {len(errors)} voters failed; the last one: {errors[-1]['message']}",
            "category": faults.EXHAUSTED.category,
            "retryable": any(error["retryable"] for error in errors),
            "detail": {"causes": causes},
        }

    def _disagreed(self, decision: Decision) -> dict[str, Any]:
        ratio = decision.analysis.agreement_ratio
        return {
            "code": "CONSENSUS_FAILED",
            "message": f"the voters do not agree: the largest part that does is {ratio:.2f}, and `conflict` "
            "is fail",
            "category": "model",
            "retryable": False,
            "detail": self._told(decision),
        }

    def _say(self, result: Any) -> None:
        """The conversation goes on with the resolved answer."""
        request, ids = self._request, self._outside.ids
        structured = request.response_format is not None
        instruction = InstructionContent(
            request.instruction, request.guidance, request.context, (), request.response_format
        )
        answer = AssistantContent(
            dumps(result).decode() if structured else result, result if structured else None
        )
        branch = str(self._execution.run.branch_id)
        self._execution.log.write(
            NewMessage(ids.new(), "instruction", dumps(instruction.wire()).decode(), "user", branch),
            NewMessage(ids.new(), "assistant_response", dumps(answer.wire()).decode(), "assistant", "user"),
        )


def stream_indices(slates: Sequence[Sequence[str]]) -> list[list[int]]:
    """For each voter's models, which stream of the run on that model it would be, from 0.

    Counted over the request, not over time: those whose own model it is come first, then those that could
    fall back on it.
    """
    own = [slate[0] for slate in slates]
    return [
        [
            own[:at].count(slate[0]),
            *(own.count(name) + sum(name in earlier[1:] for earlier in slates[:at]) for name in slate[1:]),
        ]
        for at, slate in enumerate(slates)
    ]


async def _together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of them at the same time; when one breaks, the others are cut off before that is told."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
