"""Decide how a model is asked: with what its endpoint takes natively, or in the prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.operate.middle import MiddleName
from app.core.operate.params import OperateParams
from app.core.operate.schema import AnswerContract, contract_for
from app.core.prompt import ToolSchema


@dataclass(frozen=True, slots=True)
class Asking:
    """What the model is given besides the conversation."""

    contract: AnswerContract | None = None
    """None when the answer is a plain text."""
    native_tools: tuple[ToolSchema, ...] = ()
    """Offered in the endpoint's own way; the calls come beside the text."""
    native_schema: Mapping[str, Any] | None = None
    """Enforced by the endpoint."""
    shown_schema: Mapping[str, Any] | None = None
    """Put into the prompt."""
    shown_tools: tuple[ToolSchema, ...] = ()
    """Described in the prompt; the answer itself asks for them."""
    middle: MiddleName = "communicate"
    """How its answer is had."""

    @property
    def offered(self) -> frozenset[str]:
        """Names of the tools that may be called."""
        return frozenset(tool.name for tool in (*self.native_tools, *self.shown_tools))


def ask_for(
    params: OperateParams,
    tools: Sequence[ToolSchema],
    *,
    takes_tools: bool,
    takes_schema: bool,
) -> Asking:
    """How to ask for what the parameters want.

    `tools` are those on offer; they count only when actions are on. Native tools are used for a plain text
    answer only: an answer that calls a tool natively has no room for the caller's value. Raises
    `FieldConflict` and `InvalidSchema`.
    """
    offered = tuple(tools) if params.actions else ()
    plain_text = params.response_format is None and not params.reason and not params.fields
    if offered and plain_text and takes_tools:
        return Asking(native_tools=offered)
    contract = contract_for(
        params.response_format,
        reason=params.reason,
        tools=offered,
        actions=params.actions,
        fields=params.fields,
        loose=params.loose,
    )
    if contract is None:
        return Asking()
    # Endpoints enforce objects only.
    enforced = takes_schema and contract.request.get("type") == "object"
    return Asking(
        contract=contract,
        native_schema=contract.request if enforced else None,
        shown_schema=None if enforced else contract.request,
        shown_tools=offered,
    )
