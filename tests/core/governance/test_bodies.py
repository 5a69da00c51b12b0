"""Gates, hooks and contexts: what is taken, what is kept, and what is shown."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from app.core.governance.decision import MAX_LOOPED, MAX_MEMBERS, MAX_SEEN, VARIABLES, BranchFacts, Unseeable
from app.core.governance.gate import MAX_RULES, Gate, read_gate
from app.core.governance.governance import Governance, StoredGovernance, StoredPolicies, Unreadable
from app.core.governance.hooks import MAX_HOOKS, Hooks
from tests.core.governance.calls import ID, call

RULE = {"when": "true", "effect": "deny"}
GATE: TypeAdapter[Any] = TypeAdapter(Gate)
HOOKS: TypeAdapter[Any] = TypeAdapter(Hooks)


class Picky:
    """A service that knows one expression and one address."""

    def fault(self, name: str, expression: str) -> str | None:
        """See `Outside`."""
        return None if (name, expression) == ("gate", "true") else "not that one"

    def address_fault(self, url: str) -> str | None:
        """See `Outside`."""
        return None if url == "https://gate.example" else "not there"


@pytest.mark.parametrize(
    ("gate", "at"),
    [
        ({"rules": [RULE, {"when": "x", "effect": "allow"}]}, ("rules", 1, "when")),
        ({"rules": [{"when": "true"}]}, ("rules", 0, "effect")),
        ({"rules": [{**RULE, "when": "arguments.x.map (y, y) == []"}]}, ("rules", 0, "when")),
        ({"rules": [{**RULE, "when": "arguments.x.filter // so\n (y, y) == []"}]}, ("rules", 0, "when")),
        ({"rules": [{**RULE, "effect": "ask"}]}, ("rules", 0, "effect")),
        ({"rules": [RULE] * (MAX_RULES + 1)}, ("rules",)),
        ({"rules": [{**RULE, "reason": ""}]}, ("rules", 0, "reason")),
        ({"default": None}, ("default",)),
        ({"fallback": "deny"}, ("fallback",)),
        ({"http": {"url": "https://other.example"}}, ("http", "url")),
        ({"http": {"url": "https://gate.example", "timeout_ms": 0}}, ("http", "timeout_ms")),
        ({"http": {"url": "https://gate.example"}, "rules": []}, ("rules",)),
        ([], ()),
    ],
)
def test_what_is_no_gate(gate: Any, at: tuple[Any, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        GATE.validate_python(gate, context=Picky())
    (fault,) = refused.value.errors()
    assert fault["loc"][1:] == at


def test_a_gate_is_kept_as_it_was_said() -> None:
    for said in ({}, {"rules": [RULE], "default": "escalate"}, {"http": {"url": "https://gate.example"}}):
        assert read_gate(said).stored() == said


def test_hooks_name_a_point_and_an_address() -> None:
    said = [{"point": "TOOL_PRE", "tool": "rm*", "http": {"url": "https://gate.example", "timeout_ms": 100}}]
    assert [hook.stored() for hook in HOOKS.validate_python(said, context=Picky())] == said
    for wrong in (
        [{**said[0], "point": "TOOL_START"}],
        [{**said[0], "tool": ""}],
        [{**said[0], "http": {"url": "http://other.example"}}],
        said * (MAX_HOOKS + 1),
    ):
        with pytest.raises(ValidationError):
            HOOKS.validate_python(wrong, context=Picky())


def test_expressions_see_what_they_may_use_and_a_gate_elsewhere_sees_the_digest_too() -> None:
    asked = call("rm", {"path": "/"})
    seen = asked.variables(looped=False)
    assert seen.keys() == set(VARIABLES)
    assert asked.wire() == {**seen, "arguments_digest": asked.digest}
    assert seen["branch"] == {"id": str(ID), "name": "support", "metadata": {"tier": "gold"}}
    assert seen["project"] == {"id": str(ID), "name": "shop"}
    assert seen["key"] == {"id": str(ID), "name": "web", "scopes": ["read", "run"]}
    bare = call(branch=None, key=None).variables(looped=True)
    assert (bare["branch"], bare["key"]) == (None, None)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": "y" * MAX_SEEN},
        {"x": 2**63},
        {"x": [{"y": -(2**63) - 1}]},
    ],
    ids=["large", "huge integer", "huge integer inside"],
)
def test_expressions_do_not_see_a_part_of_the_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(Unseeable):
        call("f", arguments).variables(looped=False)


def test_the_largest_that_is_seen() -> None:
    fits = {
        "x": "y" * (MAX_SEEN - len('{"x":""}')),
    }
    assert call("f", fits).variables(looped=False)["arguments"] == fits
    with pytest.raises(Unseeable):
        call("f", {"x": fits["x"] + "y"}).variables(looped=False)
    assert call("f", {"x": [2**63 - 1, -(2**63), True]}).variables(looped=False)


@pytest.mark.parametrize(("looped", "most"), [(False, MAX_MEMBERS), (True, MAX_LOOPED)])
def test_how_many_parts_are_seen(looped: bool, most: int) -> None:
    parts = [{"y": 1}] * ((most - 2) // 2)  # and the list's name, and the tier of the branch
    assert call("f", {"x": parts}).variables(looped=looped)
    for arguments, metadata in (({"x": [*parts, 1]}, {"tier": 1}), ({"x": parts}, {"tier": [1]})):
        branch = BranchFacts(ID, None, metadata)
        with pytest.raises(Unseeable):
            call("f", arguments, branch=branch).variables(looped=looped)


def test_what_cannot_be_read_any_more_is_not_taken_for_nothing() -> None:
    odd = StoredPolicies({"rules": "all"}, {"mode": "later"})
    read = Governance.of(StoredGovernance(project=odd, branch=odd))
    assert not read.is_empty
    assert [by for by, _ in read.gates()] == ["project.gate", "branch.gate"]
    assert [by for by, _ in read.permissions()] == ["project.permissions", "branch.permissions"]
    assert all(isinstance(part, Unreadable) for _, part in (*read.gates(), *read.permissions()))


def test_who_has_no_policies_is_governed_by_nobody() -> None:
    assert Governance.of(StoredGovernance()).is_empty
    assert not Governance.of(StoredGovernance(branch=StoredPolicies(gate={}))).is_empty
