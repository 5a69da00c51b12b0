"""Count the ways by which a validator comes to the same value: what makes a small schema endless work.

Two references to one definition double the work, and so do two alternatives that both look into the same
member. Thirty such steps are a kilobyte of schema and a thousand million visits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from app.core.json_text import pointer

UNBOUNDED_DEPTH = -1
"""Follow every reference once, instead of as often as a value of some depth would."""

_IN_PLACE_ONE = ("not", "if", "then", "else", "propertyNames")
_IN_PLACE_MANY = ("allOf", "anyOf", "oneOf")
_INSIDE_ONE = ("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains")


class Unfollowable(Exception):
    """A reference whose target cannot be known from the schema alone."""

    def __init__(self, word: str, value: Any, message: str) -> None:
        """`word` is the keyword that has the value."""
        super().__init__(message)
        self.word = word
        self.value = value


class SchemaPaths:
    """The paths through one schema."""

    def __init__(self, root: Mapping[str, Any], cap: int) -> None:
        """Counts above `cap` are all the same."""
        self._root = root
        self._cap = cap
        self._known: dict[tuple[int, int], int] = {}

    def through(self, depth: int = UNBOUNDED_DEPTH) -> int:
        """Most paths to any one value inside a value that is `depth` levels deep, at most `cap` + 1.

        Raises `Unfollowable`, and RecursionError for a chain of references that is too long to follow.
        """
        return self._of(self._root, depth)

    def check_definitions(self) -> None:
        """Raise `Unfollowable` for a reference in a definition, used or not."""
        for word in ("$defs", "definitions"):
            parts = self._root.get(word)
            for part in parts.values() if isinstance(parts, Mapping) else ():
                self._of(part, UNBOUNDED_DEPTH)

    def _of(self, schema: Any, depth: int) -> int:
        if not isinstance(schema, Mapping) or depth == 0:
            return 1
        key = (id(schema), depth)
        known = self._known.get(key)
        if known is None:
            if "$id" in schema and schema is not self._root:
                words = "an `$id` below the root changes what references mean; leave it out"
                raise Unfollowable("$id", schema["$id"], words)
            self._known[key] = 0  # A circle within one value adds nothing: validators cut it.
            here = sum(self._of(part, depth) for part in self._in_place(schema))
            known = min(max(here + self._inside(schema, depth), 1), self._cap + 1)
            self._known[key] = known
        return known

    def _inside(self, schema: Mapping[str, Any], depth: int) -> int:
        below = depth if depth == UNBOUNDED_DEPTH else depth - 1
        paths = sum(self._of(schema[word], below) for word in _INSIDE_ONE if word in schema)
        named, patterns, listed = (
            schema.get(word) for word in ("properties", "patternProperties", "prefixItems")
        )
        if isinstance(named, Mapping):
            # A member has one name, so of all properties only one counts.
            paths += max((self._of(part, below) for part in named.values()), default=0)
        if isinstance(patterns, Mapping):
            paths += sum(self._of(part, below) for part in patterns.values())
        if isinstance(listed, list):
            paths += max((self._of(part, below) for part in listed), default=0)
        return paths

    def _in_place(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        for word in _IN_PLACE_MANY:
            parts = schema.get(word)
            if isinstance(parts, list):
                yield from parts
        for word in _IN_PLACE_ONE:
            if word in schema:
                yield schema[word]
        dependent = schema.get("dependentSchemas")
        if isinstance(dependent, Mapping):
            yield from dependent.values()
        for word in ("$ref", "$dynamicRef"):
            reference = schema.get(word)
            if isinstance(reference, str):
                yield self.target(reference, word)

    def target(self, reference: str, word: str = "$ref") -> Any:
        """The schema to which a reference leads. Raises `Unfollowable`, in which `word` is what has it."""
        if not reference.startswith("#"):
            words = f"{reference!r}: schemas are never fetched; refer to a part of this one"
            raise Unfollowable(word, reference, words)
        fragment = unquote(reference[1:])
        node = self._at(fragment) if fragment[:1] in ("", "/") else self._anchored(fragment)
        if not isinstance(node, Mapping | bool):
            raise Unfollowable(word, reference, f"{reference!r} leads to no schema")
        return node

    def _at(self, path: str) -> Any:
        node: Any = self._root
        for step in path.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping):
                node = node.get(name)
            elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
                node = node[int(name)]
            else:
                return None
        return node

    def _anchored(self, name: str) -> Any:
        found: list[Any] = []
        level: list[Any] = [self._root]
        while level:
            words = ("$anchor", "$dynamicAnchor")
            found += [node for node in level if isinstance(node, Mapping) and name in map(node.get, words)]
            level = [part for node in level for part in _parts(node)]
        return found[0] if len(found) == 1 else None


def _parts(node: Any) -> Iterator[Any]:
    if isinstance(node, Mapping):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def where(schema: Any, word: str, value: Any) -> str:
    """A pointer to where a keyword has this value; "" where it nowhere has."""
    level: list[tuple[Any, str]] = [(schema, "")]
    while level:
        for node, at in level:
            if isinstance(node, Mapping) and node.get(word) == value:
                return at + pointer(word)
        level = [(part, at + pointer(name)) for node, at in level for name, part in _named_parts(node)]
    return ""


def _named_parts(node: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(node, Mapping):
        yield from node.items()
    elif isinstance(node, list):
        yield from enumerate(node)


def has_empty_name(value: Any) -> bool:
    """Whether a member is called "" anywhere in a JSON value."""
    level = [value]
    while level:
        if any(isinstance(node, Mapping) and "" in node for node in level):
            return True
        level = [part for node in level for part in _parts(node)]
    return False


def size_of(value: Any) -> tuple[int, int]:
    """(depth, number of values) of a JSON value; a scalar has depth 1."""
    depth, count, level = 0, 0, [value]
    while level:
        depth += 1
        count += len(level)
        below: list[Any] = []
        for member in level:
            below += _parts(member)
        level = below
    return depth, count
