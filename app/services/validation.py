"""Judge the answer of an operate: read it, have it mended if that is asked for, apply the caller's policy."""

from __future__ import annotations

from typing import Any

from app.core.events.run import ResultValidated
from app.core.json_text import dumps, storable
from app.core.lifecycle import faults
from app.core.operate.params import OperateParams
from app.core.operate.read_output import REPAIRED, Reading
from app.ports.ambient import Clock
from app.ports.provider import ModelEndpoint
from app.services.answers import faults_of, read_answer
from app.services.exchange import Exchange
from app.services.execution import Execution
from app.services.repair import Repairer

_ENDS_THE_RUN = frozenset({faults.ABORTED.code, faults.DEADLINE.code})
"""Codes of a repair's end that are the run's too; any other leaves the answer as it is."""


class Validation:
    """The outer validation of one run, on every transport and under every policy."""

    def __init__(
        self, params: OperateParams, exchange: Exchange, clock: Clock, repairer: Repairer | None
    ) -> None:
        """`repairer` mends answers that cannot be used; None leaves them as they are."""
        self._params = params
        self._exchange = exchange
        self._clock = clock
        self._repairer = repairer
        self.reading: Reading | None = None
        """What the text was read as; None where the text itself is the result."""

    @property
    def mends(self) -> ModelEndpoint | None:
        """The model that mends answers, if one does."""
        return None if self._repairer is None else self._repairer.endpoint

    def read(self, execution: Execution) -> Reading | None:
        """Parse and validate what was asked for."""
        contract = self._exchange.answering.contract
        if contract is None or self._params.skip_validation:
            return None
        machine, validate = self._exchange.machine, self._params.validate
        past = execution.past.streams.get(0)
        reading = read_answer(
            execution.log,
            machine,
            contract,
            self._clock,
            stream=0,
            validate=validate,
            told=past is not None and past.ended,
        )
        if reading.ok or self._repairer is None:
            self._judge(execution, reading)
        self.reading = reading
        return reading

    async def accepts(self, execution: Execution, deadline_ms: float | None) -> bool:
        """Whether the answer, mended if need be, is what was asked for; otherwise the run has ended here."""
        reading = self.reading
        if reading is None or reading.ok:
            return True
        mended = await self._mended(execution, reading, deadline_ms)
        if mended is None:
            return False
        self.reading = mended
        if not mended.ok:
            self._end_mismatched(execution, mended)
        return mended.ok

    async def _mended(
        self, execution: Execution, reading: Reading, deadline_ms: float | None
    ) -> Reading | None:
        """The answer after all repairs; None when the run was ended meanwhile."""
        contract = self._exchange.answering.contract
        if self._repairer is None or contract is None:
            return reading
        mended, stopped = await self._repairer.mend(
            execution,
            reading,
            contract,
            self._exchange.budget,
            deadline_ms=deadline_ms,
            validate=self._params.validate,
        )
        ended = None if stopped is None else stopped.error
        if stopped is not None and ended is not None and ended.code in _ENDS_THE_RUN:
            self._exchange.end_badly(execution, stopped)
            return None
        self._judge(execution, mended)
        return mended

    def _judge(self, execution: Execution, reading: Reading) -> None:
        """The caller's policy is applied to this reading, and to no later one."""
        failure = reading.failure
        kind = None if failure is None else failure.kind
        wrong = [] if failure is None else faults_of(reading)
        if not execution.past.told[ResultValidated.type]:
            execution.log.event(ResultValidated(reading.ok, kind or "schema", wrong))
        repaired = [REPAIRED] if self.reading not in (None, reading) else []
        corrections = [*repaired, *reading.corrections] if reading.parsed else []
        told = {"ok": reading.ok, "kind": kind, "errors": wrong, "corrections": corrections}
        execution.run.validation = dumps(told).decode()

    def _end_mismatched(self, execution: Execution, reading: Reading) -> None:
        """The answer is not what was asked for: the caller's policy decides, and no tool runs from it."""
        policy = self._params.handle_validation
        if policy == "raise":
            assert reading.failure is not None
            error = failed("RESULT_MISMATCH", reading.failure.message)
            error["detail"] = {"code": reading.failure.code, "errors": faults_of(reading)}
            execution.run.partial_text = storable(self._exchange.machine.text) or None
            execution.finish("failed", error=error)
            return
        returned = reading.value if reading.parsed else storable(self._exchange.machine.text)
        execution.finish("completed", result=dumps(None if policy == "return_none" else returned).decode())


def failed(code: str, message: str) -> dict[str, Any]:
    """The error of a run whose answer cannot be used."""
    return {"code": code, "message": message, "category": "model", "retryable": False}
