"""The guardrails that lifecycles can choose."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from app.api.deps import Anyone, Serving
from app.api.documented import answers
from app.api.replies import reply
from app.api.schemas.guardrails import GuardrailList, called_view, rule_view
from app.core.guardrails.base import CalledRule
from app.core.guardrails.presets import PRESETS, built_in_rules

router = APIRouter(tags=["catalog"])


@router.get("/v1/guardrails", responses=answers(200, GuardrailList))
async def list_guardrails(who: Anyone, services: Serving) -> Response:
    """List the rules, what each takes, and the presets that name several of them."""
    built_in = [rule_view(kind) for _, kind in sorted(built_in_rules().items())]
    plugged = {} if services.choices is None else services.choices.rules
    called = [
        called_view(rule, services.guardrails.get(name, ""))
        for name, rule in sorted(plugged.items())
        if isinstance(rule, CalledRule)
    ]
    presets = {name: list(rules) for name, rules in PRESETS.items()}
    return reply({"data": built_in + called, "presets": presets})
