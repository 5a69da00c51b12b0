"""Decisions about calls: who is asked, whose word counts, and that whatever goes wrong is a denial."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.cel import Cel
from app.core.governance.decision import Decision
from app.core.governance.governance import Governance, StoredGovernance, StoredPolicies
from app.core.governance.remote import Remote
from app.ports.expressions import ExpressionFailed
from app.ports.governance import GateAnswer, GateFailed
from app.services.governor import Governor
from tests.core.governance.calls import call

pytestmark = pytest.mark.anyio

REMOTE = {"http": {"url": "https://gate.example", "timeout_ms": 700}}
DENY_ALL = {"mode": "deny_all"}
ALLOW = {"mode": "rules", "allow": {"*": ["*"]}}
RULE = {"when": "function == 'rm'", "effect": "deny", "reason": "never"}


class ScriptedGate:
    """A gate that answers the same each time, or fails; it notes what it was asked."""

    def __init__(self, answer: GateAnswer | Exception) -> None:
        self._answer = answer
        self.asked: list[tuple[str, Mapping[str, Any], int]] = []

    async def ask(self, gate: Remote, question: Mapping[str, Any], *, project_id: UUID) -> GateAnswer:
        """See the port."""
        assert str(project_id) == question["project"]["id"]
        self.asked.append((gate.url, question, gate.timeout_ms))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Words:
    """Expressions that are their own values, such as `true`."""

    def fault(self, text: str, variables: Any) -> str | None:
        """See the port."""
        return None

    async def evaluate(self, text: str, variables: Mapping[str, Any]) -> Any:
        """See the port."""
        if text == "fail":
            raise ExpressionFailed("no value")
        return {"true": True, "false": False}[text]


def governed(project: Mapping[str, Any] | None = None, branch: Mapping[str, Any] | None = None) -> Governance:
    return Governance.of(
        StoredGovernance(project=StoredPolicies(**(project or {})), branch=StoredPolicies(**(branch or {})))
    )


async def decided(governance: Governance, gate: ScriptedGate | None = None, **asked: Any) -> Decision:
    governor = Governor(Cel(), gate or ScriptedGate(GateFailed("nobody is there")))
    return await governor.decide(call(**asked), governance)


async def test_without_policies_everything_is_allowed() -> None:
    assert await decided(governed()) == Decision("allow")


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ({}, Decision("allow")),
        ({"default": "deny"}, Decision("deny", "project.gate", "/default")),
        ({"rules": [RULE]}, Decision("deny", "project.gate", "/rules/0", "never")),
        ({"rules": [{**RULE, "when": "function == 'ls'"}, RULE]}, ("deny", "/rules/1")),
        # The first match decides, also by allowing.
        ({"rules": [{**RULE, "effect": "allow"}, RULE], "default": "deny"}, Decision("allow")),
        ({"rules": [{**RULE, "effect": "escalate"}]}, ("escalate", "/rules/0")),
        ({"rules": [{**RULE, "when": "arguments.path.startsWith('/srv')"}]}, ("deny", "/rules/0")),
        ({"rules": [{**RULE, "when": "branch.metadata.tier == 'gold'"}]}, ("deny", "/rules/0")),
        (
            {"rules": [{**RULE, "when": "'run' in key.scopes && project.name == 'shop'"}]},
            ("deny", "/rules/0"),
        ),
        ({"rules": [{**RULE, "when": "call_id == ''", "effect": "allow"}]}, Decision("allow")),
    ],
)
async def test_a_gate_of_rules(gate: dict[str, Any], expected: Any) -> None:
    found = await decided(governed({"gate": gate}), arguments={"path": "/srv/a"})
    assert (found if isinstance(expected, Decision) else (found.effect, found.rule)) == expected


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("arguments.missing == 1", "could not be evaluated"),
        ("1 / 0 == 1", "could not be evaluated"),
        ("nobody", "nobody"),
        ("function", "neither true nor false"),
        ("1", "neither true nor false"),
        ("null", "neither true nor false"),
        ("branch.metadata", "neither true nor false"),
    ],
)
async def test_a_rule_that_gives_no_boolean_denies(when: str, why: str) -> None:
    gate = {"rules": [{"when": when, "effect": "allow"}]}
    found = await decided(governed({"gate": gate}))
    assert (found.effect, found.by, found.rule) == ("deny", "project.gate", "/rules/0")
    assert why in (found.reason or "")


@pytest.mark.parametrize(
    "arguments",
    [{"x": "y" * 70_000}, {"x": 2**63}, {"x": [1] * 600}],
    ids=["large", "huge integer", "long list"],
)
async def test_arguments_that_an_expression_cannot_see_are_denied(arguments: dict[str, Any]) -> None:
    gate = {"rules": [{"when": "false", "effect": "allow"}]}
    found = await decided(governed(None, {"gate": gate}), arguments=arguments)
    assert (found.effect, found.by, found.rule) == ("deny", "branch.gate", "/rules/0")
    assert await decided(governed(None, {"gate": {}}), arguments=arguments) == Decision("allow")


async def test_a_loop_sees_less_than_other_expressions() -> None:
    arguments = {"x": [1] * 200}
    for when, effect in (("size(arguments.x) == 200", "escalate"), ("arguments.x.exists(n, n == 1)", "deny")):
        gate = {"rules": [{"when": when, "effect": "escalate"}]}
        assert (await decided(governed({"gate": gate}), arguments=arguments)).effect == effect


async def test_a_gate_elsewhere_is_told_of_the_call_and_decides() -> None:
    for answer in (GateAnswer("deny", "not today"), GateAnswer("escalate")):
        gate = ScriptedGate(answer)
        found = await decided(governed({"gate": REMOTE}), gate, arguments={"a": 2**70})
        assert found == Decision(answer.effect, "project.gate", "/http", answer.reason)
        assert gate.asked == [("https://gate.example", call(arguments={"a": 2**70}).wire(), 700)]
    assert await decided(governed({"gate": REMOTE}), ScriptedGate(GateAnswer("allow"))) == Decision("allow")


@pytest.mark.parametrize("failure", [GateFailed("no answer in time"), RuntimeError("a bug")])
async def test_a_gate_that_does_not_answer_denies(failure: Exception) -> None:
    found = await decided(governed(None, {"gate": REMOTE}), ScriptedGate(failure))
    assert (found.effect, found.by) == ("deny", "branch.gate")
    assert "could not be asked" in (found.reason or "")


async def test_after_a_denial_nobody_is_asked() -> None:
    gate = ScriptedGate(GateAnswer("allow"))
    found = await decided(governed({"gate": {"default": "deny"}}, {"gate": REMOTE}), gate)
    assert (found.by, gate.asked) == ("project.gate", [])


@pytest.mark.parametrize(
    ("project", "branch", "expected"),
    [
        ({"permissions": DENY_ALL}, {}, ("deny", "project.permissions")),
        ({}, {"permissions": DENY_ALL}, ("deny", "branch.permissions")),
        # An escalation is remembered, and a later denial still wins.
        ({"gate": {"default": "escalate"}}, {}, ("escalate", "project.gate")),
        ({"gate": {"default": "escalate"}}, {"gate": {"default": "escalate"}}, ("escalate", "project.gate")),
        ({"gate": {"default": "escalate"}}, {"permissions": DENY_ALL}, ("deny", "branch.permissions")),
        ({"permissions": {"escalate": {"*": ["*"]}}}, {"gate": {}}, ("escalate", "project.permissions")),
        # What the branch allows, the project may deny.
        (
            {"permissions": DENY_ALL},
            {"permissions": {"allow": {"*": ["*"]}}},
            ("deny", "project.permissions"),
        ),
        # Who stands first has the word.
        ({"gate": {"default": "deny"}, "permissions": DENY_ALL}, {}, ("deny", "project.gate")),
        ({"permissions": DENY_ALL}, {"gate": {"default": "deny"}}, ("deny", "branch.gate")),
        # What cannot be read denies.
        ({"gate": {"rules": 5}}, {}, ("deny", "project.gate")),
        ({}, {"permissions": {"mode": "later"}}, ("deny", "branch.permissions")),
    ],
)
async def test_whose_word_counts(project: Any, branch: Any, expected: tuple[str, str]) -> None:
    found = await decided(governed(project, branch))
    assert (found.effect, found.by) == expected
    assert found.effect == "escalate" or found.rule is not None or "cannot be read" in (found.reason or "")


effects = st.sampled_from(["allow", "deny", "escalate"])
gates = st.one_of(
    st.none(),
    st.just(REMOTE),
    st.fixed_dictionaries(
        {
            "rules": st.lists(
                st.fixed_dictionaries(
                    {"when": st.sampled_from(["true", "false", "fail"]), "effect": effects}
                ),
                max_size=2,
            ),
            "default": effects,
        }
    ),
)
lists = st.dictionaries(st.sampled_from(["*", "rm", "ls"]), st.just(["*"]), max_size=2)
permissions = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "mode": st.sampled_from(["allow_all", "deny_all", "rules"]),
            "allow": lists,
            "deny": lists,
            "escalate": lists,
        }
    ),
)
levels = st.fixed_dictionaries({"gate": gates, "permissions": permissions})
SEVERITY = {"allow": 0, "escalate": 1, "deny": 2}


@given(levels, levels, st.sampled_from(["allow", "deny", "escalate", None]))
def test_a_branch_never_widens_its_project(project: Any, branch: Any, answer: Any) -> None:
    gate = ScriptedGate(GateFailed("down") if answer is None else GateAnswer(answer))
    governor = Governor(Words(), gate)

    def effect(*levels: Any) -> int:
        return SEVERITY[asyncio.run(governor.decide(call(), governed(*levels))).effect]

    both = effect(project, branch)
    assert both == max(effect(project), effect(None, branch))
