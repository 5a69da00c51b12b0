"""Whose word counts: every option, with every source silent or not."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from app.core.errors import Invalid
from app.core.operate.lifecycle import merge_lifecycle
from app.core.operate.params import BranchSettings, offered_tools, resolve
from app.core.operate.precedence import PRECEDENCE, How, Source, contradicted, first_said
from app.core.operate.request import REMOVED, Instruct, OperateRequest
from app.core.operate.unsupported import OPERATE

FIRST = [name for name, rule in PRECEDENCE.items() if rule.how in (How.FIRST, How.AGREE)]
AGREE = [name for name, rule in PRECEDENCE.items() if rule.how is How.AGREE]


def test_every_option_has_its_row_and_every_row_its_option() -> None:
    assert OperateRequest.model_fields.keys() - REMOVED.keys() - {"instruct"} == PRECEDENCE.keys()


def test_what_an_instruct_can_say_is_asked_of_it() -> None:
    asked = {name for name, rule in PRECEDENCE.items() if Source.INSTRUCT in rule.sources}
    assert asked == Instruct.model_fields.keys()


def test_the_request_is_asked_first_and_the_default_last() -> None:
    for rule in PRECEDENCE.values():
        assert rule.sources[0] is Source.REQUEST
        assert sorted(rule.sources, key=list(Source).index) == list(rule.sources)


@pytest.mark.parametrize("name", FIRST)
def test_the_first_that_says_something_decides(name: str) -> None:
    sources = PRECEDENCE[name].sources
    for states in product(("absent", "null", "said"), repeat=len(sources)):
        levels: dict[Source, dict[str, Any]] = {source: {} for source in Source}
        for source, state in zip(sources, states, strict=True):
            if state != "absent":
                levels[source][name] = source if state == "said" else None
        # Those who are not asked are not heard.
        for source in set(Source) - set(sources):
            levels[source][name] = "not asked"
        said = [source for source, state in zip(sources, states, strict=True) if state == "said"]
        assert first_said(levels)[name] == (said[0] if said else None)


@pytest.mark.parametrize("value", [False, 0, "", [], {}])
def test_what_is_empty_was_said(value: Any) -> None:
    levels = {Source.REQUEST: {"reason": value}, Source.INSTRUCT: {"reason": True}}
    assert first_said(levels)["reason"] == value


@pytest.mark.parametrize("name", AGREE)
@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [("a", "a", False), ("a", "b", True), (None, "b", False), ("a", None, False), ({}, [], True)],
)
def test_those_that_must_agree(name: str, one: Any, other: Any, differ: bool) -> None:
    levels = {Source.REQUEST: {name: one}, Source.INSTRUCT: {name: other}}
    assert contradicted(levels) == ([name] if differ else [])


STRATEGIES = ("absent", None, "concurrent", "sequential")


@pytest.mark.parametrize(("keyword", "instruct"), list(product(STRATEGIES, repeat=2)))
def test_an_absent_strategy_is_not_said(keyword: Any, instruct: Any) -> None:
    body: dict[str, Any] = {"instruction": "a", "instruct": {"actions": True}}
    if keyword != "absent":
        body["action_strategy"] = keyword
    if instruct != "absent":
        body["instruct"]["action_strategy"] = instruct
    params = resolve(OperateRequest.model_validate(body), BranchSettings("m"))
    said = [word for word in (keyword, instruct) if word in ("concurrent", "sequential")]
    assert params.batch.strategy == (said[0] if said else "concurrent")
    assert params.actions


BRANCHES = (None, "branch")


@pytest.mark.parametrize("option", ["chat_model", "parse_model"])
@pytest.mark.parametrize(("request_says", "branch_says"), list(product(("absent", None, "own"), BRANCHES)))
def test_a_model_is_the_requests_else_the_branchs(option: str, request_says: Any, branch_says: Any) -> None:
    settings: dict[str, Any] = {"chat_model": "m", option: branch_says}
    body: dict[str, Any] = {"instruction": "a", "chat_model": "n"}
    body.pop(option, None)
    if request_says != "absent":
        body[option] = request_says
    if option == "chat_model" and request_says != "own" and branch_says is None:
        return  # refused, which another test shows
    params = resolve(OperateRequest.model_validate(body), BranchSettings(**settings))
    assert getattr(params, option) == ("own" if request_says == "own" else branch_says)


LIFECYCLE = PRECEDENCE["lifecycle"].sources


@pytest.mark.parametrize("states", list(product(("absent", "null", "said"), repeat=len(LIFECYCLE))))
def test_every_level_of_the_lifecycle_is_heard_in_order(states: tuple[str, ...]) -> None:
    levels: list[dict[str, Any] | None] = [
        {"absent": None, "null": {"timeout": None}, "said": {"timeout": {"inter_token_ms": 1_000 + at}}}[
            state
        ]
        for at, state in enumerate(states)
    ]
    merged = merge_lifecycle(*levels).options.timeout.inter_ms
    heard = [at for at, state in enumerate(states) if state != "absent"]
    if not heard:
        assert merged == merge_lifecycle().options.timeout.inter_ms
    else:
        assert merged == (1_000 + heard[0] if states[heard[0]] == "said" else None)


CHOICES: tuple[Any, ...] = ("absent", None, True, False, [], ["a"], ["b"])


@pytest.mark.parametrize(("request_says", "branch_says"), list(product(CHOICES, (True, False, (), ("a",)))))
def test_tools_are_narrowed_and_never_added(request_says: Any, branch_says: Any) -> None:
    body = {"instruction": "a"} if request_says == "absent" else {"instruction": "a", "tools": request_says}
    request = OperateRequest.model_validate(body)
    names = set(request_says) if isinstance(request_says, list) else set()
    given = {"a", "b"} if branch_says is True else set(branch_says or ())
    if not names <= given:
        with pytest.raises(Invalid):
            resolve(request, BranchSettings("m", branch_says))
        return
    left = resolve(request, BranchSettings("m", branch_says)).tools
    offered = set(offered_tools(left, ["a", "b"]))
    assert offered == (given if request_says in ("absent", None, True) else names)


def test_what_is_still_refused() -> None:
    assert {path[0] for path in OPERATE} == {"middle"}
