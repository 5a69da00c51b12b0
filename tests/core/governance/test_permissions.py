"""Permissions: which list means which call, and which list beats which."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.core.governance.decision import MAX_SEEN, Decision
from app.core.governance.permissions import MAX_PATTERNS, Permissions
from tests.core.governance.calls import call


def decided(policy: dict[str, Any], function: str, arguments: dict[str, Any] | None = None) -> Decision:
    return Permissions.model_validate(policy).decide(call(function, arguments), "project.permissions")


READ = {"path": "/srv/a", "limit": 5}


@pytest.mark.parametrize(
    ("policy", "function", "arguments", "effect"),
    [
        ({}, "rm", READ, "allow"),
        ({"mode": "deny_all"}, "rm", READ, "deny"),
        ({"mode": "rules"}, "rm", READ, "deny"),
        # The tool's name, as it is or by a pattern; upper and lower case differ.
        ({"deny": {"rm": ["*"]}}, "rm", {}, "deny"),
        ({"deny": {"rm": ["*"]}}, "RM", {}, "allow"),
        ({"deny": {"rm": ["*"]}}, "rmdir", {}, "allow"),
        ({"deny": {"rm*": ["*"]}}, "rmdir", {}, "deny"),
        ({"deny": {"*": ["*"]}}, "anything", {}, "deny"),
        ({"deny": {"rm": []}}, "rm", {}, "allow"),
        # deny and escalate: one argument that fits one pattern.
        ({"deny": {"read": ["/srv/*"]}}, "read", READ, "deny"),
        ({"deny": {"read": ["path=/srv/*"]}}, "read", READ, "deny"),
        ({"deny": {"read": ["limit=5"]}}, "read", READ, "deny"),
        ({"deny": {"read": ["other=/srv/*"]}}, "read", READ, "allow"),
        ({"deny": {"read": ["srv"]}}, "read", READ, "allow"),
        ({"deny": {"read": ["?*"]}}, "read", {}, "allow"),
        ({"escalate": {"read": ["nothing", "5"]}}, "read", READ, "escalate"),
        # Values that are no texts are their JSON.
        ({"deny": {"f": ["on=true"]}}, "f", {"on": True}, "deny"),
        ({"deny": {"f": ["x=null"]}}, "f", {"x": None}, "deny"),
        ({"deny": {"f": ['*"a":1*']}}, "f", {"x": {"b": 2, "a": 1}}, "deny"),
        ({"deny": {"f": ['*"rm *']}}, "f", {"argv": ["rm -rf", "/"]}, "deny"),
        # allow: every argument, and at least one.
        ({"mode": "rules", "allow": {"read": ["path=/srv/*"]}}, "read", READ, "deny"),
        ({"mode": "rules", "allow": {"read": ["path=/srv/*", "limit=*"]}}, "read", READ, "allow"),
        ({"mode": "rules", "allow": {"read": ["path=/srv/*"], "*": ["limit=*"]}}, "read", READ, "allow"),
        ({"mode": "rules", "allow": {"read": ["path=/srv/*"]}}, "read", {}, "deny"),
        ({"mode": "rules", "allow": {"read": ["*"]}}, "read", {}, "allow"),
        ({"mode": "rules", "allow": {"read": ["**"]}}, "read", {}, "deny"),
        ({"mode": "deny_all", "allow": {"read": ["*"]}}, "read", READ, "allow"),
        # deny beats escalate beats allow beats the mode.
        ({"deny": {"*": ["*"]}, "escalate": {"*": ["*"]}, "allow": {"*": ["*"]}}, "f", READ, "deny"),
        ({"mode": "rules", "escalate": {"*": ["*"]}, "allow": {"*": ["*"]}}, "f", READ, "escalate"),
        ({"mode": "deny_all", "escalate": {"f": ["*"]}}, "f", READ, "escalate"),
    ],
)
def test_what_a_policy_says(
    policy: dict[str, Any], function: str, arguments: dict[str, Any], effect: str
) -> None:
    assert decided(policy, function, arguments).effect == effect


def test_a_decision_names_its_pattern() -> None:
    found = decided({"deny": {"a/b": ["x", "*"]}}, "a/b")
    assert (found.by, found.rule) == ("project.permissions", "/deny/a~1b/1")
    assert found.reason is not None
    assert "'a/b'" in found.reason
    assert decided({"mode": "rules"}, "f").rule == "/mode"
    assert decided({}, "f") == Decision("allow")


LARGE = {"text": "x" * MAX_SEEN}


@pytest.mark.parametrize(
    ("policy", "effect"),
    [
        ({"deny": {"f": ["nothing of it"]}}, "deny"),
        ({"escalate": {"f": ["nothing of it"]}}, "deny"),
        ({"mode": "rules", "allow": {"f": ["text=*"]}}, "deny"),
        ({"deny": {"g": ["x*"]}}, "allow"),
        ({"mode": "rules", "allow": {"f": ["*"]}}, "allow"),
    ],
)
def test_arguments_that_are_too_large_to_be_looked_at_are_denied_where_somebody_would_have_to(
    policy: dict[str, Any], effect: str
) -> None:
    found = decided(policy, "f", LARGE)
    assert found.effect == effect
    assert effect == "allow" or "bytes" in (found.reason or "")


@pytest.mark.parametrize(
    ("policy", "at"),
    [
        ({"mode": "sometimes"}, ("mode",)),
        ({"deny": {"f": "x"}}, ("deny", "f")),
        ({"deny": {"f": [""]}}, ("deny", "f", 0)),
        ({"allow": {"": []}}, ("allow", "", "[key]")),
        ({"deny": {"f": ["x"] * MAX_PATTERNS}}, ()),
        ({"on_escalate": "f"}, ("on_escalate",)),
    ],
)
def test_what_is_no_policy(policy: dict[str, Any], at: tuple[Any, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        Permissions.model_validate(policy)
    assert [fault["loc"] for fault in refused.value.errors()] == [at]


patterns = st.dictionaries(
    st.sampled_from(["*", "f", "g"]),
    st.lists(st.sampled_from(["*", "a=*", "1", "b=2"]), max_size=2),
    max_size=2,
)
policies = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["allow_all", "deny_all", "rules"]),
        "allow": patterns,
        "deny": patterns,
        "escalate": patterns,
    }
)
calls = st.builds(
    call, st.sampled_from(["f", "g"]), st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", 2]))
)
SEVERITY = {"allow": 0, "escalate": 1, "deny": 2}


@given(policies, patterns, calls)
def test_more_denials_never_allow_more(policy: dict[str, Any], more: dict[str, Any], asked: Any) -> None:
    stricter = {**policy, "deny": {**policy["deny"], **{f"{name}*": value for name, value in more.items()}}}
    before = Permissions.model_validate(policy).decide(asked, "project.permissions")
    after = Permissions.model_validate(stricter).decide(asked, "project.permissions")
    assert SEVERITY[after.effect] >= SEVERITY[before.effect]


@given(policies, calls)
def test_allow_never_denies(policy: dict[str, Any], asked: Any) -> None:
    without = {**policy, "allow": {}}
    before = Permissions.model_validate(without).decide(asked, "project.permissions")
    after = Permissions.model_validate(policy).decide(asked, "project.permissions")
    assert SEVERITY[after.effect] <= SEVERITY[before.effect]
