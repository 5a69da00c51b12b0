"""What is known of an answer before it is there: the place that its value has to fit into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.core.operate.params import BranchSettings, OperateParams, OperateRequest, resolve
from app.core.operate.schema import AnswerContract, contract_for
from app.core.partial.places import Place, place_of
from app.core.prompt import ToolSchema

_ANY_BRANCH: Final = BranchSettings(chat_model="any")
_ANY_TOOL: Final = ToolSchema("any", "", {"type": "object"})


def place_wanted(request: Mapping[str, Any]) -> Place | None:
    """The place of an operate's value, from its request as it was stored; None where a text is wanted."""
    params = resolve(OperateRequest.model_validate(request), _ANY_BRANCH)
    if params.skip_validation or (params.response_format is None and not params.reason and not params.fields):
        return None
    contract = contract_for(
        params.response_format,
        reason=params.reason,
        tools=[_ANY_TOOL] if params.actions else (),
        actions=params.actions,
        fields=params.fields,
        loose=params.loose,
    )
    return None if contract is None else place_of(_schema(params, contract))


def _schema(params: OperateParams, contract: AnswerContract) -> dict[str, Any]:
    """What the answer is held against, as one schema; what models make up of tools' answers is left out."""
    schema: dict[str, Any] = contract.response
    if not params.validate or params.loose:
        schema = {"type": "object"} if params.loose else {}
    if not params.actions:
        return schema
    return {**schema, "properties": {**(schema.get("properties") or {}), "action_responses": False}}
