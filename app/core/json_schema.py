"""Compile and apply JSON Schemas (2020-12) that clients wrote, without trusting them.

Nothing is fetched, patterns run in linear time, and a schema that is too large, too deep, or that would come
to one value too many times is refused before it is built.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, NoReturn, TypeVar

import jsonschema_rs

from app.core.errors import FieldError, Invalid
from app.core.json_schema_drafts import UnknownDraft, in_2020
from app.core.json_schema_faults import no_object, told
from app.core.json_schema_limits import MAX_BYTES, PATTERNS, TooLarge, check_size, pattern_weight
from app.core.json_schema_paths import SchemaPaths, Unfollowable, has_empty_name, size_of, where
from app.core.json_text import NotJson, canonical, pointer

MAX_PATHS = 100_000
"""By how many ways the parts of a schema may lead to one and the same value."""
MAX_TOLD = 50_000
"""Paths times values up to which faults are looked for one by one: each path that fails costs 0.1 ms."""
MAX_VISITS = 5_000_000
"""Paths times values up to which a value is held against a schema at all: 0.1 µs each."""
FEW_PATHS = 20
"""Up to so many paths no value is too large: the text of an answer bounds it."""
MAX_ERRORS = 20
MAX_MESSAGE = 300
"""Code points of one error message; the validator quotes whole values."""
CACHED_SCHEMAS = 256
CACHED_WEIGHT = 4_000
"""Of all schemas that are kept: 1 each, what its patterns weigh, and 1 for every `WEIGHED_BYTES` of it."""
WEIGHED_BYTES = 4_096

K = TypeVar("K")
V = TypeVar("V")


class InvalidSchema(Invalid):
    """The schema is no JSON Schema that we take."""

    code = "invalid_schema"


@dataclass(frozen=True, slots=True)
class SchemaError:
    """One way in which a value fails its schema."""

    pointer: str
    """RFC 6901 pointer into the value, "" for the whole."""
    message: str


class JsonSchema:
    """A compiled schema; made by `compile_schema`."""

    __slots__ = ("__weakref__", "_paths", "_validator", "schema", "weight")

    def __init__(self, schema: Mapping[str, Any], validator: Any, *, paths: int, weight: int) -> None:
        """`paths` is the most ways to one value, and `weight` what it weighs among those that are kept."""
        self.schema = schema
        self.weight = weight
        self._validator = validator
        self._paths = paths

    def accepts(self, value: Any) -> bool:
        """Whether the value satisfies the schema."""
        return not self._is_too_much(value) and bool(self._validator.is_valid(value))

    def check(self, value: Any, limit: int = MAX_ERRORS) -> list[SchemaError]:
        """The first `limit` faults of the value; empty when it is valid."""
        if self._is_too_much(value):
            return [SchemaError("", "is too large to be held against a schema with so many alternatives")]
        if self._validator.is_valid(value):
            return []
        if not self._can_tell(value):
            return [SchemaError("", "does not fit, and the schema has too many alternatives to tell where")]
        found = [
            (pointer(*error.instance_path), error.message)
            for error in islice(self._validator.iter_errors(value), limit)
        ]
        if has_empty_name(value):
            found = self._with_empty_names(value, found)
        return [SchemaError(place, _shortened(message)) for place, message in found]

    def _with_empty_names(self, value: Any, found: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The same faults; the validator's paths leave out each step to a member whose name is empty."""
        places: dict[tuple[str, str], list[str]] = {}
        for fault in self._validator.evaluate(value).errors():
            place = fault["instanceLocation"]
            shown = "".join("/" + step for step in place.split("/") if step)
            places.setdefault((shown, fault["error"]), []).append(place)
        return [((places.get(fault) or [fault[0]]).pop(0), fault[1]) for fault in found]

    def _is_too_much(self, value: Any) -> bool:
        return self._paths > FEW_PATHS and size_of(value)[1] * self._paths > MAX_VISITS

    def _can_tell(self, value: Any) -> bool:
        """Whether the faults can be listed: those of every alternative are, at every level."""
        depth, count = size_of(value)
        try:
            return SchemaPaths(self.schema, MAX_TOLD).through(depth) * count <= MAX_TOLD
        except RecursionError:
            return False


class _Kept(Generic[K, V]):
    """The last used ones, bounded by their number and by the weight of their schemas."""

    def __init__(self, schema_of: Callable[[V], JsonSchema]) -> None:
        self._schema_of = schema_of
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._weight = 0

    def get(self, key: K) -> V | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: K, made: V) -> None:
        if (former := self._kept.pop(key, None)) is not None:
            self._weight -= self._schema_of(former).weight
        self._kept[key] = made
        self._weight += self._schema_of(made).weight
        while len(self._kept) > CACHED_SCHEMAS or (self._weight > CACHED_WEIGHT and len(self._kept) > 1):
            self._weight -= self._schema_of(self._kept.popitem(last=False)[1]).weight


_by_digest: _Kept[bytes, JsonSchema] = _Kept(lambda made: made)


def compile_schema(schema: Any, *, at: str = "") -> JsonSchema:
    """Compile a schema; the same one is compiled once. Raises `InvalidSchema` with pointers below `at`.

    One that says in `$schema` that it is of an older draft means what it means there.
    """
    text = _text_of(schema, at)
    key = hashlib.blake2b(text, digest_size=16).digest()
    if (known := _by_digest.get(key)) is not None:
        return known
    made = _compiled(schema, at, len(text))
    _by_digest.put(key, made)
    return made


def current_schema(schema: Any, *, at: str = "") -> Mapping[str, Any]:
    """A schema of any draft as it is written in 2020-12, in its own order; checked as by `compile_schema`."""
    compile_schema(schema, at=at)
    return in_2020(schema)


_by_identity: _Kept[int, tuple[Mapping[str, Any], JsonSchema]] = _Kept(lambda held: held[1])
"""Each entry keeps its mapping alive, so that no other one can have the same identity."""


def compiled_once(schema: Mapping[str, Any], *, at: str = "") -> JsonSchema:
    """The same for a schema that nobody changes any more, without a look at its text from the second time on.

    A tool's schema is compared with the arguments of every call.
    """
    held = _by_identity.get(id(schema))
    if held is not None and held[0] is schema:
        return held[1]
    made = compile_schema(schema, at=at)
    _by_identity.put(id(schema), (schema, made))
    return made


def _text_of(schema: Any, at: str) -> bytes:
    if not isinstance(schema, Mapping):
        raise _refusal(at, no_object(schema))
    try:
        text = canonical(schema)
    except NotJson as error:
        _check_size(schema, at)  # What is too deep cannot be written either.
        raise _refusal(at, error.message) from None
    if len(text) > MAX_BYTES:
        raise _refusal(at, f"the schema has {len(text)} bytes, more than {MAX_BYTES}")
    return text


def _compiled(schema: Mapping[str, Any], at: str, size: int) -> JsonSchema:
    weight = 1 + _check_size(schema, at) + size // WEIGHED_BYTES
    try:
        current = dict(in_2020(schema))
    except UnknownDraft as error:
        raise _refusal(at + "/$schema", str(error)) from None
    paths = _paths_of(current, at)
    return JsonSchema(current, _build(current, at), paths=paths, weight=weight)


def _check_size(schema: Any, at: str) -> int:
    """What its patterns weigh."""
    try:
        check_size(schema)
        return pattern_weight(schema)
    except TooLarge as error:
        raise _refusal(at + error.where, str(error)) from None


def _paths_of(schema: Mapping[str, Any], at: str) -> int:
    try:
        counted = SchemaPaths(schema, MAX_PATHS)
        paths = counted.through()
        counted.check_definitions()
    except Unfollowable as error:
        place = at + where(schema, error.word, error.value)
        raise _refusal(place, _shortened(str(error))) from None
    except RecursionError:
        raise _refusal(at, "its references form too long a chain") from None
    if paths > MAX_PATHS:
        raise _refusal(at, f"its parts lead to one value by more than {MAX_PATHS} ways")
    return paths


def _build(schema: dict[str, Any], at: str) -> Any:
    try:
        return jsonschema_rs.Draft202012Validator(
            schema, retriever=_refuse_to_fetch, pattern_options=PATTERNS
        )
    except jsonschema_rs.ValidationError as error:
        path = list(error.instance_path)
        message = told(path, error.instance, error.message)
        raise _refusal(at + pointer(*path), _shortened(message)) from None
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise _refusal(at, _shortened(str(error))) from None


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError("schemas are never fetched; put the definition under $defs")


def _shortened(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"


def _refusal(at: str, message: str) -> InvalidSchema:
    return InvalidSchema(
        f"invalid JSON Schema: {message}", errors=[FieldError(at, message, "invalid_schema")]
    )
