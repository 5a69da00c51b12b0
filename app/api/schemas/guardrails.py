"""Guardrails as clients see them."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from app.api.schemas.common import View
from app.core.guardrails.base import CalledRule, Rule

_EXAMPLE: JsonDict = {
    "name": "zero_output",
    "kind": "built_in",
    "description": "The answer says something.",
    "streaming": False,
    "severity": "error",
    "options": {"type": "object", "properties": {}},
}


class GuardrailView(View):
    """One rule."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    name: str
    kind: str = Field(description="`built_in`, or `plug_in` for one of this installation.")
    description: str
    streaming: bool = Field(description="Whether it also judges an answer that has not ended.")
    severity: str = Field(description="Of its findings, unless the request or the finding says otherwise.")
    options: dict[str, Any] = Field(description="JSON Schema of its options.")


class GuardrailList(View):
    """All rules and presets."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"data": [_EXAMPLE], "presets": {"minimal": ["json", "zero_output"]}}]
        }
    )

    data: list[GuardrailView]
    presets: dict[str, list[str]] = Field(description="Names that stand for several rules.")


def rule_view(kind: type[Rule]) -> dict[str, Any]:
    """A built-in rule as a `GuardrailView`."""
    return {
        "name": kind.name,
        "kind": "built_in",
        "description": " ".join((kind.__doc__ or "").split()),
        "streaming": kind.streaming,
        "severity": kind.severity,
        "options": kind.Options.model_json_schema(),
    }


def called_view(rule: CalledRule, description: str) -> dict[str, Any]:
    """A plug-in's rule as a `GuardrailView`."""
    return {
        "name": rule.title,
        "kind": "plug_in",
        "description": description,
        "streaming": rule.in_stream,
        "severity": rule.usual,
        "options": {"type": "object", "properties": {}},
    }
