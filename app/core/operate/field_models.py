"""Further fields that a request adds to the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.errors import FieldError
from app.core.json_schema import SchemaError, compile_schema
from app.core.json_text import pointer
from app.core.operate.moved_schema import fragment, moved


@dataclass(frozen=True, slots=True)
class NamedField:
    """One field, beside those of the response format."""

    name: str
    schema: Mapping[str, Any]
    """Of the value, or of each member of a listable one."""
    nullable: bool = False
    """Whether it may be null, or be missing."""
    listable: bool = False
    """Whether the value is a list."""

    def asked(self) -> dict[str, Any]:
        """Its schema as a property of the request's root."""
        steps = ["properties", self.name, *(["anyOf", "0"] if self.nullable else ())]
        if self.listable:
            steps.append("items")
        own = {word: part for word, part in self.schema.items() if word not in ("$schema", "$id")}
        out: dict[str, Any] = moved(own, fragment(*steps))
        if self.listable:
            out = {"type": "array", "items": out}
        return {"anyOf": [out, {"type": "null"}]} if self.nullable else out

    def check(self, answer: Mapping[str, Any]) -> list[SchemaError]:
        """The faults of this field in an answer."""
        if self.name not in answer:
            return [] if self.nullable else [SchemaError("", f'"{self.name}" is a required property')]
        value, at = answer[self.name], pointer(self.name)
        if value is None and self.nullable:
            return []
        schema = compile_schema(self.schema)
        if not self.listable:
            return _below(at, schema.check(value))
        if not isinstance(value, list):
            return [SchemaError(at, "must be a list")]
        return [
            fault
            for index, member in enumerate(value)
            for fault in _below(at + pointer(index), schema.check(member))
        ]


def taken_names(fields: Sequence[NamedField], others: Iterable[str]) -> list[FieldError]:
    """The fields whose name another field of the answer has, or an earlier one of them."""
    taken = set(others)
    faults: list[FieldError] = []
    for index, field in enumerate(fields):
        if field.name in taken:
            told = f"the answer has another field {field.name!r}; give this one another name"
            faults.append(FieldError(f"/field_models/{index}/name", told, "field_conflict"))
        taken.add(field.name)
    return faults


def _below(at: str, faults: Iterable[SchemaError]) -> list[SchemaError]:
    return [SchemaError(at + fault.pointer, fault.message) for fault in faults]
