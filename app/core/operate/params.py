"""From a request and its branch to the parameters of one run; one table says whose word counts for what."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from app.core.action.normalize import ActionCall, accept
from app.core.errors import FieldError, Invalid
from app.core.json_schema import compile_schema
from app.core.json_text import pointer
from app.core.operate.request import (
    MAX_ACTIONS,
    ActionStrategy,
    ActRequest,
    CallParams,
    HandleValidation,
    IfBusy,
    OperateRequest,
)
from app.core.operate.unsupported import ACT, OPERATE, refuse_unsupported

__all__ = [
    "PRECEDENCE",
    "ActParams",
    "ActRequest",
    "Batch",
    "BranchSettings",
    "OperateParams",
    "OperateRequest",
    "Source",
    "offered_tools",
    "resolve",
    "resolve_act",
]

ToolChoice = bool | tuple[str, ...]
"""True for all, False for none, or names."""


class Source(StrEnum):
    """Who can say what a parameter is."""

    REQUEST = "request"
    INSTRUCT = "instruct"
    BRANCH = "branch"
    DEFAULT = "default"


_SAID = (Source.REQUEST, Source.INSTRUCT)
_CHOSEN = (Source.REQUEST, Source.INSTRUCT, Source.DEFAULT)
_OF_BRANCH = (Source.REQUEST, Source.BRANCH)
_OWN = (Source.REQUEST, Source.DEFAULT)

PRECEDENCE: Final[Mapping[str, tuple[Source, ...]]] = {
    "instruction": _SAID,
    "guidance": _SAID,
    "context": _SAID,
    "reason": _CHOSEN,
    "actions": _CHOSEN,
    "action_strategy": _CHOSEN,
    "chat_model": _OF_BRANCH,
    "parse_model": _OF_BRANCH,
    "model_options": _OWN,
    "response_format": _OWN,
    "handle_validation": _OWN,
    "validate_": _OWN,
    "skip_validation": _OWN,
    "invoke_actions": _OWN,
    "suppress_errors": _OWN,
    "verbose_action": _OWN,
    "images": _OWN,
    "if_busy": _OWN,
}
"""The first source that says something other than null decides. `tools` is narrowed, not replaced, and
`lifecycle` is merged (`merge_lifecycle`)."""

_CHOICES: Final = {"reason": False, "actions": False, "action_strategy": "concurrent"}
"""Defaults that the request's own fields cannot hold, because absent must differ from said."""


@dataclass(frozen=True, slots=True)
class BranchSettings:
    """What a branch says about its runs."""

    chat_model: str | None = None
    tools: ToolChoice = True
    parse_model: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """How several calls are made."""

    strategy: ActionStrategy = "concurrent"
    max_concurrent: int | None = None
    """Calls at the same time; None leaves it to the service."""
    call_timeout_s: float | None = None
    """How long one call may take before it has failed with TIMEOUT; None leaves it to the tool."""
    suppress_errors: bool = True
    """Whether a failed call is a value, or ends the request."""
    verbose: bool = False
    """Whether a preview of each call's arguments is logged."""
    retries: int = 0
    """Further attempts at a call whose tool failed; only where the tool may be called twice."""
    retry_delay_s: float = 0.0
    retry_backoff: float = 1.0
    """The delay before each further attempt is that many times the one before."""
    retry_any_tool: bool = False
    """Whether tools that are not declared idempotent may be called twice too."""
    throttle_s: float = 0.0
    """Between the beginnings of two calls."""
    keep_failures: bool = False
    """Whether an unsuppressed failure stays in its place, and the other calls go on."""


@dataclass(frozen=True, slots=True)
class OperateParams:
    """Everything a run of operate needs to know of its request."""

    instruction: Any
    chat_model: str
    guidance: Any = None
    context: Any = None
    images: tuple[str, ...] = ()
    model_options: Mapping[str, Any] = field(default_factory=dict)
    response_format: Mapping[str, Any] | None = None
    handle_validation: HandleValidation = "return_value"
    validate: bool = True
    """False accepts any JSON as the answer."""
    skip_validation: bool = False
    """True makes the text the result, and runs nothing."""
    reason: bool = False
    actions: bool = False
    """Whether the model may ask for tool calls: `actions` and `invoke_actions` of the request."""
    tools: ToolChoice = True
    batch: Batch = field(default_factory=Batch)
    if_busy: IfBusy = "enqueue"
    parse_model: str | None = None
    """Which model mends an answer that cannot be used; None has none mended."""


@dataclass(frozen=True, slots=True)
class ActParams:
    """Everything a run of act needs to know of its request."""

    calls: tuple[ActionCall, ...]
    batch: Batch = field(default_factory=Batch)
    if_busy: IfBusy = "enqueue"


def resolve(request: OperateRequest, branch: BranchSettings) -> OperateParams:
    """The parameters of a run. Raises `Invalid` or `UnsupportedOption` with pointers.

    The lifecycle is merged apart, because the chosen model has a say in it.
    """
    refuse_unsupported(request.model_dump(exclude_unset=True, by_alias=True), OPERATE)
    _refuse_contradictions(request)
    chosen = {name: _first(name, request, branch) for name in PRECEDENCE}
    if _is_blank(chosen["instruction"]):
        where = FieldError("/instruction", "give `instruction`, or `instruct.instruction`", "missing")
        raise Invalid("an instruction is missing", errors=[where])
    if chosen["chat_model"] is None:
        where = FieldError("/chat_model", "the branch has no model; name a registered one", "missing")
        raise Invalid("no chat_model is chosen", errors=[where])
    if chosen["response_format"] is not None:
        compile_schema(chosen["response_format"], at="/response_format")
    strategy = chosen.pop("action_strategy")
    return OperateParams(
        batch=_batch(
            request.call_params, strategy, chosen.pop("suppress_errors"), chosen.pop("verbose_action")
        ),
        actions=chosen.pop("actions") and chosen.pop("invoke_actions"),
        validate=chosen.pop("validate_"),
        images=tuple(_checked_images(chosen.pop("images"))),
        tools=_narrowed(request.tools, branch.tools),
        **{name: value for name, value in chosen.items() if name != "invoke_actions"},
    )


def resolve_act(request: ActRequest) -> ActParams:
    """The parameters of a run. Raises `Invalid` or `UnsupportedOption` with pointers."""
    refuse_unsupported(request.model_dump(exclude_unset=True), ACT)
    calls = accept(request.requests)
    if len(calls) > MAX_ACTIONS:
        where = FieldError("/requests", f"{len(calls)} calls, at most {MAX_ACTIONS} may be asked for")
        raise Invalid("too many calls in one request", errors=[where])
    return ActParams(
        calls=tuple(calls),
        batch=_batch(request.call_params, request.strategy, request.suppress_errors, request.verbose_action),
        if_busy=request.if_busy,
    )


def offered_tools(choice: ToolChoice, known: Collection[str], *, asked: bool = False) -> list[str]:
    """Names of the tools that a choice offers, in the order of `known`, the project's tools.

    A chosen tool that is gone is left out; with `asked`, where the choice is the request's own, it is an
    `Invalid` naming it.
    """
    if isinstance(choice, bool):
        return list(known) if choice else []
    if asked:
        faults = [
            FieldError("/tools" + pointer(index), f"there is no tool {name!r}", "unknown_tool")
            for index, name in enumerate(choice)
            if name not in known
        ]
        if faults:
            raise Invalid("a tool is asked for that does not exist", errors=faults)
    return [name for name in known if name in set(choice)]


def _first(name: str, request: OperateRequest, branch: BranchSettings) -> Any:
    for source in PRECEDENCE[name]:
        value = _from(source, name, request, branch)
        if value is not None:
            return value
    return None


def _from(source: Source, name: str, request: OperateRequest, branch: BranchSettings) -> Any:
    match source:
        case Source.REQUEST:
            return getattr(request, name)
        case Source.INSTRUCT:
            return getattr(request.instruct, name, None)
        case Source.BRANCH:
            return getattr(branch, name)
        case Source.DEFAULT:
            return _CHOICES.get(name)


def _refuse_contradictions(request: OperateRequest) -> None:
    instruct = request.instruct
    if instruct is None:
        return
    faults = [
        FieldError(f"/{name}", f"differs from `instruct.{name}`; give one of them", "contradiction")
        for name, sources in PRECEDENCE.items()
        if sources is _SAID
        and None not in (loose := getattr(request, name), inner := getattr(instruct, name))
        and loose != inner
    ]
    if faults:
        raise Invalid("the request and its `instruct` contradict each other", errors=faults)


def _is_blank(instruction: Any) -> bool:
    return instruction is None or (isinstance(instruction, str) and not instruction.strip())


def _checked_images(images: list[str]) -> list[str]:
    faults = [
        FieldError("/images" + pointer(index), "an image is an http, https or data URL")
        for index, image in enumerate(images)
        if not image.startswith(("https://", "http://", "data:image/"))
    ]
    if faults:
        raise Invalid("an image is no URL", errors=faults)
    return images


def _narrowed(asked: bool | list[str] | None, branch: ToolChoice) -> ToolChoice:
    """What the request leaves of the branch's tools: it can take some away and add none."""
    if asked is None or asked is True:
        return branch
    if asked is False:
        return False
    if branch is True:
        return tuple(asked)
    offered = branch or ()
    faults = [
        FieldError("/tools" + pointer(index), f"the branch does not offer {name!r}", "tool_not_offered")
        for index, name in enumerate(asked)
        if name not in offered
    ]
    if faults:
        raise Invalid("a request can only narrow the tools of its branch", errors=faults)
    return tuple(asked)


def _batch(
    params: CallParams | None, strategy: ActionStrategy, suppress_errors: bool, verbose: bool
) -> Batch:
    chosen = params or CallParams()
    return Batch(
        strategy,
        chosen.max_concurrent,
        chosen.retry_timeout,
        suppress_errors,
        verbose,
        chosen.retry_attempts,
        chosen.retry_initial_delay,
        chosen.retry_backoff,
        chosen.retry_any_tool,
        chosen.throttle_period or 0.0,
        chosen.return_exceptions,
    )
