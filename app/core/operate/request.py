"""The bodies of operate and act, as clients send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from app.core.images import MAX_IMAGES, Image
from app.core.json_schema_member import SchemaMember
from app.core.operate.lifecycle import LifecycleBody

MAX_ACTIONS = 128
"""Tool calls of one run."""
MAX_FIELDS = 100
"""Further fields of one answer."""

ActionStrategy = Literal["concurrent", "sequential"]
HandleValidation = Literal["return_value", "return_none", "raise"]
IfBusy = Literal["enqueue", "reject", "interrupt", "rollback"]
Tools = bool | Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=1_000)]
"""True for all, false for none, or names."""

NOT_OFFERED = "Not offered by this version."


_SCHEMA_INSTEAD = "give a JSON Schema as `response_format`"
_STORED_INSTEAD = "everything is kept in Postgres and read under /v1/runs and /v1/branches"

REMOVED: Final[Mapping[str, str]] = {
    "operative": "the schemas follow from `response_format`, `reason` and `actions`",
    "request_model": _SCHEMA_INSTEAD,
    "operative_model": _SCHEMA_INSTEAD,
    "imodel": "name a registered model as `chat_model`",
    "persist_dir": _STORED_INSTEAD,
    "snapshot_dir": _STORED_INSTEAD,
}
"""Names that are refused, each with what to do instead."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Instruct(_Body):
    """The instruction with its choices in one object."""

    instruction: Any = Field(None, description="What the model is asked; usually text, any JSON value.")
    guidance: Any = Field(None, description="How it should go about it.")
    context: Any = Field(None, description="What it should know.")
    reason: bool | None = None
    actions: bool | None = None
    action_strategy: ActionStrategy | None = None


class CallParams(_Body):
    """How a batch of tool calls is made."""

    retry_attempts: int = Field(
        0,
        ge=0,
        le=10,
        description="Further attempts at a call whose tool failed, of the same `call_id`; only at tools that "
        "are declared idempotent, unless `retry_any_tool` is set.",
    )
    retry_initial_delay: float = Field(0, ge=0, le=3_600, description="Seconds before the second attempt.")
    retry_backoff: float = Field(
        1, ge=0, le=100, description="By what the delay is multiplied for each further attempt."
    )
    retry_timeout: float | None = Field(
        None,
        gt=0,
        le=3_600,
        description="Seconds that one attempt may take; then it has failed with TIMEOUT.",
    )
    retry_any_tool: bool = Field(
        False, description="Also tries tools again that may take effect twice by that."
    )
    max_concurrent: int | None = Field(None, ge=1, le=MAX_ACTIONS, description="Calls at the same time.")
    throttle_period: float | None = Field(
        None, ge=0, le=3_600, description="Seconds between the beginnings of two calls."
    )
    output_dropna: bool = Field(
        True, description="Leaves out slots without a response, of which this service has none."
    )
    return_exceptions: bool = Field(
        False,
        description="With `suppress_errors: false` a failed call stays in its place as a value, and neither "
        "ends the request nor the other calls.",
    )


Party = Annotated[str, Field(min_length=1, max_length=200)]
"""Who speaks, or is spoken to."""


class FieldModel(_Body):
    """A further field of the answer, beside those of the response format."""

    name: str = Field(min_length=1, max_length=200)
    schema_: SchemaMember = Field(alias="schema", description="JSON Schema 2020-12 of its value.")
    nullable: bool = Field(False, description="It may be null, or be missing.")
    listable: bool = Field(False, description="Its value is a list of what the schema describes.")


class OperateRequest(_Body):
    """Ask a model, have its answer validated, and run the tools it asks for."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "instruction": "What is 19 + 23?",
                    "actions": True,
                    "tools": ["add"],
                    "response_format": {
                        "type": "object",
                        "properties": {"answer": {"type": "integer"}},
                        "required": ["answer"],
                    },
                    "lifecycle": {"timeout": {"total_ms": 60000}},
                }
            ]
        }
    )

    instruction: Any = Field(None, description="What the model is asked; usually text, any JSON value.")
    guidance: Any = Field(None, description="How it should go about it.")
    context: Any = Field(None, description="What it should know.")
    instruct: Instruct | None = Field(
        None, description="The same in one object; what both say must agree, and each fills the other's gaps."
    )
    chat_model: str | None = Field(None, description="Name of a registered model; the branch's by default.")
    parse_model: str | None = Field(
        None,
        description="Has an answer that cannot be used mended by this registered model, up to three times; "
        "the branch's by default, none if it has none.",
    )
    model_options: dict[str, Any] = Field(
        default_factory=dict,
        description="Sampling options in the provider's own words.",
        examples=[{"temperature": 0}],
    )
    response_format: SchemaMember | None = Field(
        None, description="JSON Schema 2020-12 that the answer has to satisfy."
    )
    response_fields: Annotated[dict[str, Any], Field(min_length=1)] | None = Field(
        None,
        description="In place of `response_format`: fields with an example, or the name of a type, each. The "
        "answer has to be an object; its fields are not checked.",
        examples=[{"title": "string", "pages": 320}],
    )
    handle_validation: HandleValidation = Field(
        "return_value",
        description="What becomes of an answer that does not satisfy it: it is returned as it came, null is "
        "returned, or the request ends with a problem.",
    )
    validate_: bool = Field(True, alias="validate", description="False accepts any JSON as the answer.")
    skip_validation: bool = Field(
        False, description="The answer's text is the result: nothing is read from it, and no tool runs."
    )
    reason: bool | None = Field(None, description="Asks for the reasoning beside the answer.")
    field_models: Annotated[list[FieldModel], Field(max_length=MAX_FIELDS)] | None = Field(
        None, description="Further fields of the answer, beside those of the response format; checked."
    )
    actions: bool | None = Field(None, description="Lets the model ask for tool calls.")
    invoke_actions: bool = Field(True, description="False offers no tools and runs none.")
    tools: Tools | None = Field(
        None,
        description="True for all tools of the branch, false for none, or names; absent is the branch's.",
    )
    tool_schemas: Annotated[list[dict[str, Any]], Field(max_length=MAX_ACTIONS)] | None = Field(
        None,
        description="Descriptions of tools that the model is told of and that never run, in any form. Not "
        "together with actions, where the model is shown the tools on offer.",
    )
    action_strategy: ActionStrategy | None = Field(
        None, description="Absent is what `instruct` says, else concurrent."
    )
    call_params: CallParams | None = None
    suppress_errors: bool = Field(
        True, description="False ends the request with a problem when a tool call or the run fails."
    )
    verbose_action: bool = Field(False, description="Logs a preview of each call's arguments.")
    dedupe_actions: bool = Field(
        False,
        description="Requests of one answer for the same function with the same arguments are carried out "
        "once, and each is given that call's response.",
    )
    images: Annotated[list[Image], Field(max_length=MAX_IMAGES)] = Field(
        default_factory=list,
        description="http or https URLs, which the model's server fetches, or data URLs. Private addresses "
        "only if the operator lists them.",
    )
    image_detail: Literal["auto", "low", "high"] = Field(
        "auto", description="How closely the model is to look at the images."
    )
    sender: Party | None = Field(
        None, description="Who gives the instruction, as its message tells; `user` by default."
    )
    recipient: Party | None = Field(
        None, description="Whom it is given to, as its message tells; the branch by default."
    )
    progression: Annotated[list[str], Field(max_length=10_000)] | None = Field(
        None,
        description="Ids of the branch's messages that the model is shown as the conversation so far, in the "
        "branch's order; absent is all since it last began anew.",
    )
    clear_messages: bool = Field(
        False,
        description="The conversation that models are shown begins anew with this instruction, once it is "
        "answered; system messages stay. Nothing is deleted.",
    )
    include_token_usage_to_model: bool = Field(
        False, description="Tells the model about how many tokens the conversation takes."
    )
    stream_persist: bool = Field(
        False, description="True asks for the middle `run_and_collect`; every stream is persisted anyway."
    )
    middle: str | None = Field(
        None,
        description="How the answer is had: `communicate`, a request and one message, or `run_and_collect`, "
        "the texts of all messages until the model is done. Absent leaves it to the kind of the model.",
    )
    if_busy: IfBusy = Field(
        "enqueue",
        description="When the branch has an active run: `enqueue` waits for its end, `reject` is a 409, "
        "`interrupt` has it cancelled and takes its place, and `rollback` leaves what it said out of the "
        "conversation, too.",
    )
    lifecycle: LifecycleBody | None = Field(None, description="Overrides the branch's, field by field.")

    operative: SkipJsonSchema[Any] = None
    request_model: SkipJsonSchema[Any] = None
    operative_model: SkipJsonSchema[Any] = None
    imodel: SkipJsonSchema[Any] = None
    persist_dir: SkipJsonSchema[Any] = None
    snapshot_dir: SkipJsonSchema[Any] = None

    @field_validator(*REMOVED, mode="before")
    @classmethod
    def _refuse_removed(cls, value: Any, info: ValidationInfo) -> NoReturn:
        guidance = REMOVED[info.field_name or ""]
        raise PydanticCustomError("removed_option", "not an option here: {guidance}", {"guidance": guidance})


class ActRequest(_Body):
    """Run tool calls on a branch, without a model."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"requests": [{"function": "add", "arguments": {"a": 19, "b": 23}}]}],
        }
    )

    requests: list[Any] | dict[str, Any] = Field(
        description="Objects with `function` and `arguments`, or a single one. Arguments that are no object "
        "make a failed call; null and an empty text mean none.",
    )
    strategy: ActionStrategy = "concurrent"
    suppress_errors: bool = Field(
        True, description="False ends the request with a problem when a call fails."
    )
    verbose_action: bool = Field(False, description="Logs a preview of each call's arguments.")
    call_params: CallParams | None = None
    if_busy: IfBusy = Field("enqueue", description="As in operate.")
