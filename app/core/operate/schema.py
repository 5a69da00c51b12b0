"""What a model is asked to answer with, what is accepted as the answer, and what the result looks like.

Three schemas of one thing. The model is shown the request schema, which names the tools on offer. Its answer
is checked part by part: the caller's part against the caller's own schema, ours leniently, so that a call to
a tool that was not offered becomes that call's error. The response schema adds `action_responses`, which only
this service writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from app.core.errors import FieldError, Invalid
from app.core.json_schema import JsonSchema, SchemaError, compile_schema, compiled_once
from app.core.json_text import pointer
from app.core.operate.field_models import NamedField, taken_names
from app.core.operate.moved_schema import DEFINITIONS, fragment, moved, refers_to_root
from app.core.operate.own_fields import (
    ACTION_RESPONSES,
    ACTIONS,
    ACTIONS_ACCEPTED,
    OWN_ACCEPTED,
    REASON,
    REASON_ACCEPTED,
    REASON_ASKED,
    actions_asked,
)
from app.core.prompt import ToolSchema

# A root with one of these words may say more of its properties than `properties` does: ours cannot join them.
_NOT_PLAIN: Final = frozenset(
    {
        "$ref",
        "$dynamicRef",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "dependentSchemas",
        "dependentRequired",
        "unevaluatedProperties",
        "enum",
        "const",
    }
)
_DEFINITIONS: Final = ("$defs", "definitions")
_HELD_APART: Final = frozenset({*_DEFINITIONS, "$schema", "$id"})
_VALUE: Final = fragment("properties", "value")


class FieldConflict(Invalid):
    """Two fields of the answer have one name: the schema's, a further field's, or an option's."""

    code = "field_conflict"


@dataclass(frozen=True)
class AnswerContract:
    """What was agreed on with one model about its answer; made by `contract_for`."""

    response_format: Mapping[str, Any] | None
    """The caller's schema; None when the answer is a text."""
    reason: bool
    tools: tuple[ToolSchema, ...]
    """Tools that the answer may ask for; empty when the actions go another way, or are off."""
    wrapped: bool
    """Whether the caller's value stands under `value`, because its root is no plain object."""
    fields: tuple[NamedField, ...] = ()
    """Further fields of the caller's, beside those of the schema."""
    loose: bool = False
    """Whether the schema only shows what the answer is like: any object satisfies it."""
    actions: bool = False
    """Whether the names of the action fields are ours, also where no tool is on offer."""

    @property
    def name(self) -> str:
        """Title of the caller's schema, or `Operative`; the schemas' titles are made of it."""
        title = (self.response_format or {}).get("title")
        return title if isinstance(title, str) and title else "Operative"

    @cached_property
    def request(self) -> dict[str, Any]:
        """The schema that the model is shown."""
        named = {field.name: field.asked() for field in self.fields}
        return self._around(
            f"{self.name}Request",
            before={"reason": REASON_ASKED} if self.reason else {},
            after={**named, **(actions_asked(self.tools) if self.tools else {})},
            required=[*self._own_names(), *named],
        )

    @cached_property
    def response(self) -> dict[str, Any]:
        """The schema of the result."""
        after = {**ACTIONS_ACCEPTED, "action_responses": ACTION_RESPONSES} if self.tools else {}
        named = {field.name: field.asked() for field in self.fields}
        return self._around(
            f"{self.name}Response",
            before={"reason": REASON_ACCEPTED} if self.reason else {},
            after={**named, **after},
            required=[field.name for field in self.fields if not field.nullable],
        )

    def without_made_up(self, value: Any) -> Any:
        """The answer without `action_responses`: no model can know what a tool answered."""
        if self.actions and isinstance(value, dict) and "action_responses" in value:
            return {name: member for name, member in value.items() if name != "action_responses"}
        return value

    def check(self, value: Any) -> list[SchemaError]:
        """Every fault of the answer; empty when it keeps the contract."""
        if not self._extended:
            return self._caller_faults(value)
        if not isinstance(value, dict):
            return [SchemaError("", "the answer must be an object")]
        own = {name: value[name] for name in self._own_names() if name in value}
        named = {field.name for field in self.fields}
        theirs = {name: member for name, member in value.items() if name not in own and name not in named}
        faults = compiled_once(OWN_ACCEPTED).check(own)
        for field in self.fields:
            faults += field.check(value)
        return faults + (self._wrapped_faults(theirs) if self.wrapped else self._caller_faults(theirs))

    def action_requests(self, value: Any) -> list[Any] | None:
        """The tool calls that an answer asks for; None when it says nothing of them."""
        if not self.tools or not isinstance(value, Mapping):
            return None
        requests = value.get("action_requests")
        return requests if isinstance(requests, list) else None

    def wants_one_by_one(self, value: Any) -> bool:
        """Whether an answer says, in a field that the caller asked for, that its calls follow each other."""
        declared = {field.name for field in self.fields}
        if not self.wrapped:
            declared |= ((self.response_format or {}).get("properties") or {}).keys()
        return (
            "action_strategy" in declared
            and isinstance(value, Mapping)
            and value.get("action_strategy") == "sequential"
        )

    def result(self, value: Any, action_responses: Sequence[Mapping[str, Any]] = ()) -> Any:
        """The run's result: the answer, enriched by what its actions gave.

        An answer that is a text alone is that text again when nothing was asked of it but actions, and none
        came, so that the result does not depend on how the tools were offered.
        """
        text_only = self.response_format is None and not self.reason and not self.fields
        if text_only and not action_responses and isinstance(value, Mapping):
            return value.get("value")
        return enrich(value, action_responses)

    @property
    def _extended(self) -> bool:
        """Whether fields of ours stand beside the caller's."""
        return self.reason or bool(self.tools or self.fields)

    def _own_names(self) -> list[str]:
        return [*(REASON if self.reason else ()), *(ACTIONS[:2] if self.tools else ())]

    @cached_property
    def _caller_schema(self) -> JsonSchema | None:
        return None if self.response_format is None else compile_schema(self.response_format)

    def _caller_faults(self, value: Any) -> list[SchemaError]:
        if self.loose:
            return [] if isinstance(value, dict) else [SchemaError("", "the answer must be an object")]
        return [] if self._caller_schema is None else self._caller_schema.check(value)

    def _wrapped_faults(self, theirs: Mapping[str, Any]) -> list[SchemaError]:
        faults = [SchemaError(pointer(name), "is not asked for") for name in theirs if name != "value"]
        if self.response_format is None:
            if not isinstance(theirs.get("value"), str | None):
                faults.append(SchemaError("/value", "must be a text"))
        elif "value" not in theirs:
            faults.append(SchemaError("", '"value" is a required property'))
        else:
            inner = self._caller_faults(theirs["value"])
            faults += [SchemaError("/value" + fault.pointer, fault.message) for fault in inner]
        return faults

    def _around(
        self, title: str, *, before: Mapping[str, Any], after: Mapping[str, Any], required: list[str]
    ) -> dict[str, Any]:
        """The caller's schema with fields of ours around its own."""
        schema = dict(self.response_format or {})
        if not self._extended:
            return {**schema, "title": title}
        if self.wrapped:
            return {
                **{word: schema[word] for word in _HELD_APART if word in schema},
                **moved(
                    {word: schema[word] for word in _DEFINITIONS if word in schema},
                    _VALUE,
                    staying=DEFINITIONS,
                ),
                "title": title,
                "type": "object",
                "properties": {**before, "value": self._value_schema(), **after},
                "required": [*required, *(["value"] if self.response_format is not None else [])],
                "additionalProperties": False,
            }
        if refers_to_root(schema):
            schema = _with_root_defined(schema)
        theirs = schema.get("properties") or {}
        return {
            **schema,
            "title": title,
            "type": "object",
            "properties": {**before, **theirs, **after},
            "required": [*required, *(schema.get("required") or [])],
        }

    def _value_schema(self) -> Any:
        if self.response_format is None:
            return {"type": ["string", "null"], "description": "The answer in words."}
        inner = {word: part for word, part in self.response_format.items() if word not in _HELD_APART}
        return moved(inner, _VALUE, staying=DEFINITIONS)


def contract_for(
    response_format: Mapping[str, Any] | None,
    *,
    reason: bool,
    tools: Iterable[ToolSchema] = (),
    actions: bool | None = None,
    fields: Sequence[NamedField] = (),
    loose: bool = False,
) -> AnswerContract | None:
    """The contract for an answer; None when a plain text is all that is wanted.

    `tools` are those that the answer itself shall ask for, and `actions` whether the request lets it ask for
    any, which is by default whether there are some. `loose` is for a format that was given as fields. Raises
    `FieldConflict` when two fields have the same name, and `InvalidSchema`.
    """
    offered = tuple(tools)
    if response_format is None and not reason and not offered and not fields:
        return None
    acting = bool(offered) if actions is None else actions
    at = "/response_fields" if loose else "/response_format"
    plain = response_format is not None and _is_plain_object(response_format)
    if response_format is not None:
        compile_schema(response_format, at=at)
    reserved = [*(REASON if reason else ()), *(ACTIONS if acting else ())]
    theirs = (response_format or {}).get("properties") or {} if plain else {}
    _refuse_conflicts(theirs, reserved, at=at if loose else f"{at}/properties")
    faults = taken_names(fields, [*reserved, *(theirs if plain else ["value"])])
    if faults:
        raise FieldConflict("a further field has a name that is taken", errors=faults)
    return AnswerContract(
        response_format,
        reason,
        offered,
        wrapped=not plain,
        fields=tuple(fields),
        loose=loose,
        actions=acting,
    )


def enrich(
    value: Any,
    action_responses: Sequence[Mapping[str, Any]],
    *,
    action_requests: Sequence[Any] = (),
) -> Any:
    """A result with what its actions gave: beside its fields, or beside `value` when it has none.

    Without action responses it stays as it is. `action_requests` are those of a native call, which the value
    does not hold itself.
    """
    if not action_responses:
        return value
    if isinstance(value, Mapping):
        return {**value, "action_responses": list(action_responses)}
    return {
        "value": value,
        "action_requests": list(action_requests),
        "action_responses": list(action_responses),
    }


def _is_plain_object(schema: Mapping[str, Any]) -> bool:
    stands_for_object = schema.get("type") == "object" or ("type" not in schema and "properties" in schema)
    return stands_for_object and not (_NOT_PLAIN & schema.keys())


def _refuse_conflicts(theirs: Mapping[str, Any], reserved: Iterable[str], *, at: str) -> None:
    faults = [
        FieldError(
            at + pointer(name),
            f"the request's options add a field {name!r}; give the property another name",
            "field_conflict",
        )
        for name in reserved
        if name in theirs
    ]
    if faults:
        raise FieldConflict("the response format has a property whose name is taken", errors=faults)


def _with_root_defined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that refers to itself, before fields of ours join its root: the references leave them out."""
    definitions = dict(schema.get("$defs") or {})
    name = "Self"
    while name in definitions:
        name += "_"
    apart = {word: part for word, part in schema.items() if word not in _HELD_APART}
    root = fragment("$defs", name)
    whole: dict[str, Any] = moved({**schema, "$defs": {**definitions, name: apart}}, root, staying=("#/",))
    return whole
