"""What a schema says of a place in a value, as far as that can be said before the value is whole.

Where it says nothing definite, everything is taken: only what cannot be part of any valid value is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final

from app.core.json_schema import JsonSchema, compile_schema
from app.core.json_schema_paths import SchemaPaths, Unfollowable

MAX_ALTERNATIVES: Final = 64
"""Ways for one place to be valid; where there are more, everything is taken."""

MAX_EXPANDED: Final = 10_000
"""Parts of one schema that are looked at in all; where it takes more, everything is taken from then on."""

Alternative = tuple[Mapping[str, Any], ...]
"""Schemas that have to hold together."""

_OF_SCALARS: Final = frozenset(
    {
        "type",
        "enum",
        "const",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    }
)
_OF_WHOLE_TEXTS: Final = frozenset({"enum", "const", "pattern", "format", "minLength"})
"""Words by which a text is right or wrong as a whole, so that its beginning is no value."""
_OF_WHOLE_VALUES: Final = frozenset({"enum", "const"})
_ENDLESS: Final = float("inf")
_LARGEST: Final = 2**53
"""More than any text has, where a schema may name a number that no float can hold."""


class Place:
    """Where a value may stand; made by `place_of`."""

    def __init__(self, judge: _Judge, alternatives: Sequence[Alternative]) -> None:
        self._judge = judge
        self._alternatives = alternatives
        self._members: dict[str | None, Place | None] = {}
        """Where members stand that were asked for; None for those of every other name."""
        growing = [one for one in alternatives if all(map(_may_grow, one))]
        self.grows = bool(growing)
        """Whether a text may be shown while it grows."""
        self.longest = max((min(map(_longest, one), default=_ENDLESS) for one in growing), default=0.0)
        """Code points that such a text may have."""

    def accepts(self, value: Any) -> bool:
        """Whether a whole scalar may stand here."""
        return any(all(self._judge.accepts(s, value) for s in one) for one in self._alternatives)

    def opened(self, kind: str) -> Place | None:
        """This place, known to hold an `object` or an `array`; None where that is not shown as it grows."""
        left = [one for one in self._alternatives if all(_may_hold(schema, kind) for schema in one)]
        return self._judge.place(left)

    def member(self, name: str) -> Place | None:
        """Where a member stands; None where none of this name may."""
        # All names that no schema knows are the same, so that what is kept is bounded by the schemas.
        known = any(name in (s.get("properties") or ()) for one in self._alternatives for s in one)
        key = name if known else None
        if key not in self._members:
            below = [[_member(s, name) for s in one] for one in self._alternatives]
            self._members[key] = self._judge.below(below)
        return self._members[key]

    def item(self, index: int) -> Place | None:
        """Where an item stands; None where none may."""
        return self._judge.below([[_item(s, index) for s in one] for one in self._alternatives])

    def narrowed(self, name: str, value: Any) -> Place:
        """This place, known that a member is this scalar; itself where that says nothing."""
        if len(self._alternatives) == 1:
            return self
        left = []
        for one in self._alternatives:
            alone = self._judge.place([one])
            if alone and (below := alone.member(name)) and below.accepts(value):
                left.append(one)
        return self._judge.place(left) or self


def place_of(schema: Mapping[str, Any] | bool) -> Place:
    """The place of a whole value; `schema` has been compiled, so it is bounded and complete."""
    judge = _Judge(schema if isinstance(schema, Mapping) else {})
    place = judge.below([[schema]])
    return judge.anywhere if place is None else place


class _TooMany(Exception):
    """More than is looked at."""


class _Judge:
    """One schema, and what has been found out about its parts."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._paths = SchemaPaths(root, 0)
        self._left = MAX_EXPANDED
        self._checks: dict[int, tuple[Mapping[str, Any], JsonSchema | None]] = {}
        self._expanded: dict[int, tuple[Mapping[str, Any], list[Alternative]]] = {}
        self._places: dict[frozenset[tuple[int, ...]], Place] = {}
        self.anywhere = Place(self, [()])
        """Where everything is taken."""

    def accepts(self, schema: Mapping[str, Any], value: Any) -> bool:
        """Whether a scalar satisfies what a schema says of scalars."""
        held = self._checks.get(id(schema))
        if held is None:
            words = {word: part for word, part in schema.items() if word in _OF_SCALARS}
            # Beside the check its schema is kept, so that no other one can have the same identity.
            held = self._checks[id(schema)] = (schema, compile_schema(words) if words else None)
        return held[1] is None or held[1].accepts(value)

    def below(self, alternatives: Iterable[Sequence[Any]]) -> Place | None:
        """The place for which one of the alternatives has to hold; None where none can."""
        found: dict[tuple[int, ...], Alternative] = {}
        try:
            for schemas in alternatives:
                for one in self._all_of(schemas, frozenset()):
                    found.setdefault(tuple(map(id, one)), one)
                if len(found) > MAX_ALTERNATIVES:
                    raise _TooMany
        except (_TooMany, Unfollowable, RecursionError):
            return self.anywhere
        return self.place(list(found.values()))

    def place(self, alternatives: Sequence[Alternative]) -> Place | None:
        """The one place with these alternatives; None without one."""
        key = frozenset(tuple(map(id, one)) for one in alternatives)
        place = self._places.get(key)
        if place is None and alternatives:
            place = self._places[key] = Place(self, alternatives)
        return place

    def _all_of(self, schemas: Sequence[Any], within: frozenset[int]) -> list[Alternative]:
        """The ways in which all of the schemas can hold."""
        return _combined([self._ways(schema, within) for schema in schemas])

    def _ways(self, schema: Any, within: frozenset[int]) -> list[Alternative]:
        if schema is False:
            return []
        # A circle within one value adds nothing to it.
        if not isinstance(schema, Mapping) or id(schema) in within:
            return [()]
        if within:
            return self._expand(schema, within)
        held = self._expanded.get(id(schema))
        if held is None:
            held = self._expanded[id(schema)] = (schema, self._expand(schema, within))
        return held[1]

    def _expand(self, schema: Mapping[str, Any], within: frozenset[int]) -> list[Alternative]:
        self._left -= 1
        if self._left < 0:
            raise _TooMany
        inside = within | {id(schema)}
        targets = [self._paths.target(schema[w], w) for w in ("$ref", "$dynamicRef") if w in schema]
        every: list[list[Alternative]] = [
            [(schema,)],
            self._all_of([*targets, *(schema.get("allOf") or ())], inside),
            *(
                [way for part in schema[word] for way in self._ways(part, inside)]
                for word in ("anyOf", "oneOf")
                if word in schema
            ),
        ]
        return _combined(every)


def _combined(parts: Sequence[Sequence[Alternative]]) -> list[Alternative]:
    """One way of each part, in every combination; counted before any is made. Raises `_TooMany`."""
    if prod(map(len, parts)) > MAX_ALTERNATIVES:
        raise _TooMany
    return [_together(combined) for combined in product(*parts)]


def _together(alternatives: Iterable[Alternative]) -> Alternative:
    return tuple({id(schema): schema for one in alternatives for schema in one}.values())


def _types(schema: Mapping[str, Any]) -> Sequence[str] | None:
    """Those that it names; None where it takes all."""
    named = schema.get("type")
    return [named] if isinstance(named, str) else named


def _allows(schema: Mapping[str, Any], kind: str) -> bool:
    types = _types(schema)
    return types is None or kind in types


def _may_grow(schema: Mapping[str, Any]) -> bool:
    return _allows(schema, "string") and not schema.keys() & _OF_WHOLE_TEXTS


def _may_hold(schema: Mapping[str, Any], kind: str) -> bool:
    return _allows(schema, kind) and not schema.keys() & _OF_WHOLE_VALUES


def _longest(schema: Mapping[str, Any]) -> float:
    bound = schema.get("maxLength")
    return _ENDLESS if bound is None else float(min(bound, _LARGEST))


def _member(schema: Mapping[str, Any], name: str) -> Any:
    named = schema.get("properties") or {}
    if name in named:
        return named[name]
    if "patternProperties" in schema:
        return True
    return schema.get("additionalProperties", True)


def _item(schema: Mapping[str, Any], index: int) -> Any:
    if "maxItems" in schema and index >= schema["maxItems"]:
        return False
    first = schema.get("prefixItems") or ()
    return first[index] if index < len(first) else schema.get("items", True)
