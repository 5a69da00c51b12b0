"""How large a schema may be: checked before anything is built of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import jsonschema_rs

from app.core.json_text import pointer

MAX_BYTES: Final = 256 * 1024
"""Of the schema as compact JSON."""
MAX_DEPTH: Final = 64
"""Levels of arrays and objects."""
MAX_NODES: Final = 10_000
"""Members of all arrays and objects together."""
MAX_PROPERTIES: Final = 2_000
"""Members of all `properties` together."""
MAX_ENUM: Final = 1_000
"""Values of one `enum`."""
MAX_PATTERN_WEIGHT: Final = 200
"""Of all patterns together: 1 for a common one, more for one that is large when it is compiled."""

PATTERNS: Final = jsonschema_rs.RegexOptions()
"""The engine that matches in linear time; one of its programs may take up to 10 MiB."""
_WEIGHTS: Final = ((64 * 1024, 1), (1024 * 1024, 16))
"""What a pattern weighs whose program stays below so many bytes."""
_HEAVIEST: Final = 96


class TooLarge(Exception):
    """A limit is broken; the pointer leads to where."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


def check_size(schema: Any) -> None:
    """Raise `TooLarge` for a schema with too much in it; goes level by level, whatever the depth is."""
    nodes = properties = 0
    level: list[tuple[Any, str]] = [(schema, "")]
    for _ in range(MAX_DEPTH):
        below: list[tuple[Any, str]] = []
        for node, where in level:
            nodes += len(node)
            if isinstance(node, Mapping):
                properties += len(_mapping(node.get("properties")))
                choices = node.get("enum")
                if isinstance(choices, list) and len(choices) > MAX_ENUM:
                    raise TooLarge(where + "/enum", f"an enum has more than {MAX_ENUM} values")
            below += [(child, where + pointer(key)) for key, child in _members(node) if _is_container(child)]
        if nodes > MAX_NODES:
            raise TooLarge("", f"the schema has more than {MAX_NODES} members")
        if properties > MAX_PROPERTIES:
            raise TooLarge("", f"the schema has more than {MAX_PROPERTIES} properties")
        if not below:
            return
        level = below
    raise TooLarge(level[0][1], f"the schema is nested more than {MAX_DEPTH} levels deep")


def pattern_weight(schema: Mapping[str, Any]) -> int:
    """What the patterns of a schema weigh together. Raises `TooLarge`."""
    weight = 0
    for pattern in set(_patterns(schema)):
        weight += _weight(pattern)
        if weight > MAX_PATTERN_WEIGHT:
            raise TooLarge("", "the schema has too many patterns, or too large ones")
    return weight


def _weight(pattern: str) -> int:
    """One that is no pattern at all is the heaviest; it is refused later, where it stands."""
    for limit, weight in _WEIGHTS:
        options = jsonschema_rs.RegexOptions(size_limit=limit)
        with suppress(ValueError):
            jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options)
            return weight
    return _HEAVIEST


def _patterns(node: Any) -> Iterator[str]:
    """Every pattern; what only looks like one, in a default for example, is counted too."""
    if isinstance(node, Mapping):
        if isinstance(node.get("pattern"), str):
            yield node["pattern"]
        yield from _mapping(node.get("patternProperties"))
    if _is_container(node):
        for _, child in _members(node):
            yield from _patterns(child)


def _mapping(node: Any) -> Mapping[str, Any]:
    return node if isinstance(node, Mapping) else {}


def _members(node: Any) -> Iterator[tuple[str | int, Any]]:
    return iter(node.items()) if isinstance(node, Mapping) else iter(enumerate(node))


def _is_container(node: Any) -> bool:
    return isinstance(node, Mapping | list)
