"""From an accepted answer to its tool calls, and from those to the run's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.core.action.normalize import ActionCall, proposed
from app.core.json_text import storable
from app.core.lifecycle.toolcalls import ToolCall
from app.core.operate.dedupe import Batched, collapsed, one_by_one
from app.core.operate.params import Batch, OperateParams
from app.core.operate.schema import AnswerContract, enrich


@dataclass(frozen=True, slots=True)
class Answered:
    """What the action phase needs to know of the answer; a run that waits keeps it."""

    text: str
    value: Any
    read: bool
    """Whether the value was read from the text, and is what the result is made of."""
    calls: Sequence[ActionCall]

    def wire(self) -> dict[str, Any]:
        """As JSON has it."""
        calls = [[call.function, call.raw_arguments, call.provider_call_id] for call in self.calls]
        return {"text": storable(self.text), "value": self.value, "read": self.read, "calls": calls}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Answered:
        """What `wire` gave."""
        calls = [
            proposed({"function": function, "arguments": arguments}, provider_call_id=id)
            for function, arguments, id in stored["calls"]
        ]
        return cls(stored["text"], stored["value"], stored["read"], calls)

    def batched(self, params: OperateParams) -> Batched:
        """What is carried out for the calls."""
        return collapsed(self.calls) if params.dedupe_actions else one_by_one(self.calls)

    def manner(self, batch: Batch, contract: AnswerContract | None) -> Batch:
        """How the calls are made: an answer may have them follow each other, and never the reverse."""
        if not self.read or contract is None or not contract.wants_one_by_one(self.value):
            return batch
        return replace(batch, strategy="sequential")

    def result(self, contract: AnswerContract | None, responses: Sequence[Mapping[str, Any]]) -> Any:
        """The run's result: the answer, with what its tool calls gave beside it."""
        if self.read and contract is not None:
            return contract.result(self.value, responses)
        requests = [{"function": call.function, "arguments": call.raw_arguments} for call in self.calls]
        return enrich(storable(self.text), responses, action_requests=requests)


def requested_calls(
    params: OperateParams,
    contract: AnswerContract | None,
    value: Any,
    native: Sequence[ToolCall] | None,
) -> list[ActionCall]:
    """The tool calls that an answer asks for; none unless actions are on.

    `native` are those of the wire, None where tools stood in the prompt: then they are read from the value.
    """
    if params.skip_validation or not params.actions:
        return []
    if native is not None:
        return [
            proposed({"function": call.name, "arguments": call.arguments}, provider_call_id=call.id)
            for call in native
        ]
    if contract is None or value is None:
        return []
    return [proposed(request) for request in contract.action_requests(value) or ()]
