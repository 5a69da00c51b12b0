"""Move a JSON Schema to another place of a document, so that its references still lead where they led."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import quote

from app.core.json_text import pointer

_BY_NAME: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Words whose members are schemas under names of the caller's; such a name means nothing here."""
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""Words whose value is no schema, whatever it looks like."""
DEFINITIONS: Final = ("#/$defs/", "#/definitions/")


def fragment(*steps: str) -> str:
    """A reference to a place in the same document."""
    return "#" + quote(pointer(*steps), safe="/")


def moved(schema: Any, to: str, *, staying: Collection[str] = ()) -> Any:
    """The schema as it has to be written at `to`, a reference such as `#/properties/value`.

    References that begin with one of `staying` are left: their targets do not move along.
    """
    if isinstance(schema, list):
        return [moved(part, to, staying=staying) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    out: dict[str, Any] = {}
    for word, part in schema.items():
        if word in _DATA:
            out[word] = part
        elif word == "$ref" and isinstance(part, str):
            out[word] = _reference(part, to, staying)
        elif word in _BY_NAME and isinstance(part, Mapping):
            out[word] = {name: moved(below, to, staying=staying) for name, below in part.items()}
        else:
            out[word] = moved(part, to, staying=staying)
    return out


def refers_to_root(schema: Any) -> bool:
    """Whether something in the schema stands for the whole of it."""
    if isinstance(schema, list):
        return any(map(refers_to_root, schema))
    if not isinstance(schema, Mapping):
        return False
    for word, part in schema.items():
        if word in _BY_NAME and isinstance(part, Mapping):
            if any(map(refers_to_root, part.values())):
                return True
        elif part == "#" if word == "$ref" else word not in _DATA and refers_to_root(part):
            return True
    return False


def _reference(target: str, to: str, staying: Collection[str]) -> str:
    # `#name` leads to an anchor, wherever that stands.
    inside = target == "#" or target.startswith("#/")
    if not inside or any(target.startswith(start) for start in staying):
        return target
    return to + target[1:]
