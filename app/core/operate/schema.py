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
from app.core.json_schema import JsonSchema, SchemaError, compile_schema
from app.core.json_text import pointer
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
_HELD_APART: Final = frozenset({"$defs", "definitions", "$schema", "$id"})


class FieldConflict(Invalid):
    """The caller's schema has a property whose name an option of the request uses."""

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

    @property
    def name(self) -> str:
        """Title of the caller's schema, or `Operative`; the schemas' titles are made of it."""
        title = (self.response_format or {}).get("title")
        return title if isinstance(title, str) and title else "Operative"

    @cached_property
    def request(self) -> dict[str, Any]:
        """The schema that the model is shown."""
        return self._around(
            f"{self.name}Request",
            before={"reason": REASON_ASKED} if self.reason else {},
            after=actions_asked(self.tools) if self.tools else {},
            required=self._own_names(),
        )

    @cached_property
    def response(self) -> dict[str, Any]:
        """The schema of the result."""
        after = {**ACTIONS_ACCEPTED, "action_responses": ACTION_RESPONSES} if self.tools else {}
        return self._around(
            f"{self.name}Response",
            before={"reason": REASON_ACCEPTED} if self.reason else {},
            after=after,
            required=[],
        )

    def without_made_up(self, value: Any) -> Any:
        """The answer without `action_responses`: no model can know what a tool answered."""
        if self.tools and isinstance(value, dict) and "action_responses" in value:
            return {name: member for name, member in value.items() if name != "action_responses"}
        return value

    def check(self, value: Any) -> list[SchemaError]:
        """Every fault of the answer; empty when it keeps the contract."""
        if not self._extended:
            return self._caller_faults(value)
        if not isinstance(value, dict):
            return [SchemaError("", "the answer must be an object")]
        own = {name: value[name] for name in self._own_names() if name in value}
        theirs = {name: member for name, member in value.items() if name not in own}
        faults = compile_schema(OWN_ACCEPTED).check(own)
        return faults + (self._wrapped_faults(theirs) if self.wrapped else self._caller_faults(theirs))

    def action_requests(self, value: Any) -> list[Any] | None:
        """The tool calls that an answer asks for; None when it says nothing of them."""
        if not self.tools or not isinstance(value, Mapping):
            return None
        requests = value.get("action_requests")
        return requests if isinstance(requests, list) else None

    def result(self, value: Any, action_responses: Sequence[Mapping[str, Any]] = ()) -> Any:
        """The run's result: the answer, enriched by what its actions gave.

        An answer that is a text alone is that text again when nothing was asked of it but actions, and none
        came, so that the result does not depend on how the tools were offered.
        """
        text_only = self.response_format is None and not self.reason
        if text_only and not action_responses and isinstance(value, Mapping):
            return value.get("value")
        return enrich(value, action_responses)

    @property
    def _extended(self) -> bool:
        """Whether fields of ours stand beside the caller's."""
        return self.reason or bool(self.tools)

    def _own_names(self) -> list[str]:
        return [*(REASON if self.reason else ()), *(ACTIONS[:2] if self.tools else ())]

    @cached_property
    def _caller_schema(self) -> JsonSchema | None:
        return None if self.response_format is None else compile_schema(self.response_format)

    def _caller_faults(self, value: Any) -> list[SchemaError]:
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
                "title": title,
                "type": "object",
                "properties": {**before, "value": self._value_schema(), **after},
                "required": [*required, *(["value"] if self.response_format is not None else [])],
                "additionalProperties": False,
            }
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
        return _moved(inner)


def contract_for(
    response_format: Mapping[str, Any] | None, *, reason: bool, tools: Iterable[ToolSchema] = ()
) -> AnswerContract | None:
    """The contract for an answer; None when a plain text is all that is wanted.

    `tools` are those that the answer itself shall ask for. Raises `FieldConflict` when the caller's schema
    uses a name of ours, and `InvalidSchema`.
    """
    offered = tuple(tools)
    if response_format is None and not reason and not offered:
        return None
    plain = response_format is not None and _is_plain_object(response_format)
    if response_format is not None:
        compile_schema(response_format, at="/response_format")
        if plain:
            _refuse_conflicts(response_format, [*(REASON if reason else ()), *(ACTIONS if offered else ())])
    return AnswerContract(response_format, reason, offered, wrapped=not plain)


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


def _refuse_conflicts(schema: Mapping[str, Any], reserved: Iterable[str]) -> None:
    theirs = schema.get("properties") or {}
    faults = [
        FieldError(
            "/response_format/properties" + pointer(name),
            f"the request's options add a field {name!r}; give the property another name",
            "field_conflict",
        )
        for name in reserved
        if name in theirs
    ]
    if faults:
        raise FieldConflict("the response format has a property whose name is taken", errors=faults)


def _moved(schema: Any) -> Any:
    """A schema that has moved from the root to `/properties/value`, its definitions staying at the root."""
    if isinstance(schema, list):
        return [_moved(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {word: _moved_member(word, part) for word, part in schema.items()}


def _moved_member(word: str, part: Any) -> Any:
    if word == "$ref" and isinstance(part, str) and part.startswith("#"):
        stays = part.startswith(("#/$defs/", "#/definitions/"))
        return part if stays else "#/properties/value" + part[1:]
    return part if word in ("const", "enum", "default", "examples") else _moved(part)
