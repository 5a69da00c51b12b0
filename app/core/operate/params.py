"""From a request and its branch to the parameters of one run; one table says whose word counts for what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.core.action.normalize import ActionCall, accept
from app.core.errors import FieldError, Invalid
from app.core.json_schema import compile_schema, current_schema
from app.core.json_text import pointer
from app.core.operate.field_models import NamedField
from app.core.operate.middle import MiddleName
from app.core.operate.precedence import Levels, Source, contradicted, first_said
from app.core.operate.request import (
    MAX_ACTIONS,
    ActionStrategy,
    ActRequest,
    CallParams,
    FieldModel,
    HandleValidation,
    IfBusy,
    OperateRequest,
)
from app.core.operate.response_fields import schema_of_fields
from app.core.operate.unsupported import OPERATE, refuse_unsupported

__all__ = [
    "ActParams",
    "ActRequest",
    "Batch",
    "BranchSettings",
    "OperateParams",
    "OperateRequest",
    "offered_tools",
    "resolve",
    "resolve_act",
]

ToolChoice = bool | tuple[str, ...]
"""True for all, False for none, or names."""


_DEFAULTS: Final[Mapping[str, Any]] = {
    **{
        name: field.get_default(call_default_factory=True)
        for name, field in OperateRequest.model_fields.items()
    },
    # What an instruct can say too: the request's own field has to tell absent from said.
    "reason": False,
    "actions": False,
    "action_strategy": "concurrent",
}

_AS_SAID: Final = (
    "instruction",
    "guidance",
    "context",
    "chat_model",
    "parse_model",
    "model_options",
    "handle_validation",
    "skip_validation",
    "reason",
    "dedupe_actions",
    "image_detail",
    "sender",
    "recipient",
    "clear_messages",
    "include_token_usage_to_model",
    "if_busy",
)
"""Parameters that are options as they are."""


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
    loose: bool = False
    """Whether an answer need only be an object: the format was given as fields."""
    fields: tuple[NamedField, ...] = ()
    """Beside those of the format."""
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
    tool_schemas: tuple[Mapping[str, Any], ...] = ()
    """Told to the model, and never run."""
    dedupe_actions: bool = False
    """Whether requests for the same are carried out once."""
    image_detail: str = "auto"
    sender: str | None = None
    recipient: str | None = None
    progression: tuple[str, ...] | None = None
    """Ids of the messages that the model is shown; None is all since the conversation last began anew."""
    clear_messages: bool = False
    """Whether it begins anew here."""
    include_token_usage_to_model: bool = False
    middle: MiddleName | None = None
    """How answers are had; None leaves it to each model's kind."""


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
    levels = _levels(request, branch)
    _refuse_contradictions(levels)
    chosen = first_said(levels)
    if _is_blank(chosen["instruction"]):
        where = FieldError("/instruction", "give `instruction`, or `instruct.instruction`", "missing")
        raise Invalid("an instruction is missing", errors=[where])
    if chosen["chat_model"] is None:
        where = FieldError("/chat_model", "the branch has no model; name a registered one", "missing")
        raise Invalid("no chat_model is chosen", errors=[where])
    actions = chosen["actions"] and chosen["invoke_actions"]
    _refuse_clashes(chosen, actions=actions)
    response_format, loose = _format_of(chosen)
    fields = _fields_of(chosen["field_models"] or ())
    progression = chosen["progression"]
    return OperateParams(
        batch=_batch(
            request.call_params,
            chosen["action_strategy"],
            chosen["suppress_errors"],
            chosen["verbose_action"],
        ),
        actions=actions,
        validate=chosen["validate_"],
        images=tuple(_checked_images(chosen["images"])),
        tools=_narrowed(request.tools, branch.tools),
        response_format=response_format,
        loose=loose,
        fields=fields,
        tool_schemas=tuple(chosen["tool_schemas"] or ()),
        progression=None if progression is None else tuple(progression),
        middle="run_and_collect" if chosen["stream_persist"] else chosen["middle"],
        **{name: chosen[name] for name in _AS_SAID},
    )


def resolve_act(request: ActRequest) -> ActParams:
    """The parameters of a run. Raises `Invalid` with pointers."""
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


def _levels(request: OperateRequest, branch: BranchSettings) -> Levels:
    """What everybody says."""
    instruct = request.instruct
    return {
        Source.REQUEST: {name: getattr(request, name) for name in request.model_fields_set},
        Source.INSTRUCT: {}
        if instruct is None
        else {n: getattr(instruct, n) for n in instruct.model_fields_set},
        Source.BRANCH: {"chat_model": branch.chat_model, "parse_model": branch.parse_model},
        Source.DEFAULT: _DEFAULTS,
    }


def _refuse_contradictions(levels: Levels) -> None:
    faults = [
        FieldError(f"/{name}", f"differs from `instruct.{name}`; give one of them", "contradiction")
        for name in contradicted(levels)
    ]
    if faults:
        raise Invalid("the request and its `instruct` contradict each other", errors=faults)


def _refuse_clashes(chosen: Mapping[str, Any], *, actions: bool) -> None:
    """Options that cannot both be carried out."""
    clashes = {
        "response_fields": (
            chosen["response_fields"] is not None and chosen["response_format"] is not None,
            "stands in place of `response_format`; give one of them",
        ),
        "tool_schemas": (
            actions and bool(chosen["tool_schemas"]),
            "with actions the model is shown the tools on offer; leave it out, or the actions",
        ),
        "progression": (
            chosen["clear_messages"] and chosen["progression"] is not None,
            "`clear_messages` shows none of the messages; give one of them",
        ),
        "middle": (
            chosen["stream_persist"] and chosen["middle"] == "communicate",
            "`stream_persist` asks for `run_and_collect`; give one of them",
        ),
    }
    faults = [
        FieldError(f"/{name}", told, "contradiction") for name, (clash, told) in clashes.items() if clash
    ]
    if faults:
        raise Invalid("options of the request contradict each other", errors=faults)


def _format_of(chosen: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, bool]:
    """The response format, and whether it is a loose one."""
    fields = chosen["response_fields"]
    if fields is not None:
        schema = schema_of_fields(fields)
        compile_schema(schema, at="/response_fields")
        return schema, True
    if chosen["response_format"] is None:
        return None, False
    return current_schema(chosen["response_format"], at="/response_format"), False


def _fields_of(models: Sequence[FieldModel]) -> tuple[NamedField, ...]:
    return tuple(
        NamedField(
            one.name,
            current_schema(one.schema_, at=f"/field_models/{index}/schema"),
            one.nullable,
            one.listable,
        )
        for index, one in enumerate(models)
    )


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
