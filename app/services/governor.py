"""Decide about tool calls by the policies of a project and a branch; whatever goes wrong is a denial."""

from __future__ import annotations

import structlog

from app.core.governance.decision import ALLOWED, By, CallContext, Decision, Unseeable
from app.core.governance.gate import HttpGate, RulesGate
from app.core.governance.governance import Gate, Governance, Unreadable
from app.core.governance.permissions import Permissions
from app.core.json_text import pointer
from app.ports.expressions import ExpressionFailed, Expressions
from app.ports.governance import GateClient, GateFailed

log = structlog.get_logger("governor")


class Governor:
    """Asks one after the other, and nobody more after a denial."""

    def __init__(self, expressions: Expressions, gates: GateClient) -> None:
        self._expressions = expressions
        self._gates = gates

    async def decide(self, context: CallContext, governance: Governance) -> Decision:
        """What becomes of a call; never raises.

        An allowance is in nobody's name: the others did not object either.
        """
        decision = ALLOWED
        for by, gate in governance.gates():
            decision = decision.then(await self._opinion(context, gate, by))
            if decision.effect == "deny":
                return decision
        for by, permissions in governance.permissions():
            decision = decision.then(_permission(context, permissions, by))
            if decision.effect == "deny":
                return decision
        return decision

    async def _opinion(self, context: CallContext, gate: Gate, by: By) -> Decision:
        try:
            match gate:
                case RulesGate():
                    return await self._by_rules(context, gate, by)
                case HttpGate():
                    return await self._from_address(context, gate, by)
                case Unreadable():
                    return _unreadable(by)
        except Exception as bug:
            log.exception("a gate failed by a bug", by=by)
            return Decision("deny", by, None, f"the gate could not be asked: {type(bug).__name__}")

    async def _by_rules(self, context: CallContext, gate: RulesGate, by: By) -> Decision:
        for place, rule in enumerate(gate.rules):
            at = pointer("rules", place)
            try:
                seen = context.variables(looped=rule.looped)
                value = await self._expressions.evaluate(rule.when, seen)
            except Unseeable as hidden:
                return Decision("deny", by, at, str(hidden))
            except ExpressionFailed as failure:
                return Decision("deny", by, at, f"the rule could not be evaluated: {failure}")
            if not isinstance(value, bool):
                return Decision("deny", by, at, "the rule gives neither true nor false")
            if value:
                return Decision(rule.effect, by, at, rule.reason)
        return Decision(gate.default, by, "/default")

    async def _from_address(self, context: CallContext, gate: HttpGate, by: By) -> Decision:
        try:
            answer = await self._gates.ask(gate.http, context.wire(), project_id=context.project.id)
        except GateFailed as failure:
            return Decision("deny", by, "/http", f"the gate could not be asked: {failure}")
        return Decision(answer.effect, by, "/http", answer.reason)


def _permission(context: CallContext, permissions: Permissions | Unreadable, by: By) -> Decision:
    if isinstance(permissions, Unreadable):
        return _unreadable(by)
    try:
        return permissions.decide(context, by)
    except Exception as bug:
        log.exception("permissions failed by a bug", by=by)
        return Decision("deny", by, None, f"the permissions could not be read: {type(bug).__name__}")


def _unreadable(by: By) -> Decision:
    return Decision("deny", by, None, "the stored policy cannot be read by this version")
