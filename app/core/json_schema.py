"""Compile and apply JSON Schemas (2020-12) that clients wrote, without trusting them.

Nothing is fetched, patterns run in linear time, and a schema that is too large, too deep, or that would come
to one value too many times is refused before it is built.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import jsonschema_rs

from app.core.errors import FieldError, Invalid
from app.core.json_schema_paths import SchemaPaths, Unfollowable, size_of
from app.core.json_text import NotJson, canonical, pointer

MAX_BYTES = 64 * 1024
MAX_DEPTH = 64
MAX_NODES = 5_000
MAX_ENUM = 1_000
MAX_PATHS = 100_000
"""By how many ways the parts of a schema may lead to one and the same value."""
MAX_TOLD = 50_000
"""Paths times values up to which faults are looked for one by one: each path that fails costs 0.1 ms."""
MAX_ERRORS = 20
MAX_MESSAGE = 300
"""Code points of one error message; the validator quotes whole values."""
CACHED_SCHEMAS = 256


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

    __slots__ = ("_validator", "schema")

    def __init__(self, schema: Mapping[str, Any], validator: Any) -> None:
        self.schema = schema
        self._validator = validator

    def accepts(self, value: Any) -> bool:
        """Whether the value satisfies the schema."""
        return bool(self._validator.is_valid(value))

    def check(self, value: Any, limit: int = MAX_ERRORS) -> list[SchemaError]:
        """The first `limit` faults of the value; empty when it is valid."""
        if self._validator.is_valid(value):
            return []
        if not self._can_tell(value):
            return [SchemaError("", "does not fit, and the schema has too many alternatives to tell where")]
        found: list[SchemaError] = []
        for error in self._validator.iter_errors(value):
            if len(found) == limit:
                break
            found.append(SchemaError(pointer(*error.instance_path), _shortened(error.message)))
        return found

    def _can_tell(self, value: Any) -> bool:
        """Whether the faults can be listed: those of every alternative are, at every level."""
        depth, count = size_of(value)
        try:
            return SchemaPaths(self.schema, MAX_TOLD).through(depth) * count <= MAX_TOLD
        except RecursionError:
            return False


_cache: OrderedDict[bytes, JsonSchema] = OrderedDict()


def compile_schema(schema: Any, *, at: str = "") -> JsonSchema:
    """Compile a schema; the same one is compiled once. Raises `InvalidSchema` with pointers below `at`."""
    text = _checked_text(schema, at)
    key = hashlib.blake2b(text, digest_size=16).digest()
    if (known := _cache.get(key)) is not None:
        _cache.move_to_end(key)
        return known
    _check_paths(schema, at)
    made = JsonSchema(schema, _build(dict(schema), at))
    _cache[key] = made
    if len(_cache) > CACHED_SCHEMAS:
        _cache.popitem(last=False)
    return made


_known: OrderedDict[int, tuple[Mapping[str, Any], JsonSchema]] = OrderedDict()
"""By identity; each entry keeps its mapping alive, so that no other one can have the same."""


def compiled_once(schema: Mapping[str, Any], *, at: str = "") -> JsonSchema:
    """The same for a schema that nobody changes any more, without a look at its text from the second time on.

    A tool's schema is compared with the arguments of every call.
    """
    held = _known.get(id(schema))
    if held is not None and held[0] is schema:
        return held[1]
    made = compile_schema(schema, at=at)
    _known[id(schema)] = schema, made
    if len(_known) > CACHED_SCHEMAS:
        _known.popitem(last=False)
    return made


def _checked_text(schema: Any, at: str) -> bytes:
    if isinstance(schema, bool):
        meaning = "accepts everything" if schema else "accepts nothing"
        raise _refusal(at, f"a schema that {meaning} is not taken here; write an object")
    if not isinstance(schema, Mapping):
        raise _refusal(at, "a JSON Schema is an object")
    _check_size(schema, at)
    try:
        text = canonical(schema)
    except NotJson as error:
        raise _refusal(at, error.message) from None
    if len(text) > MAX_BYTES:
        raise _refusal(at, f"the schema has {len(text)} bytes, more than {MAX_BYTES}")
    return text


def _build(schema: dict[str, Any], at: str) -> Any:
    try:
        return jsonschema_rs.Draft202012Validator(
            schema, retriever=_refuse_to_fetch, pattern_options=jsonschema_rs.RegexOptions()
        )
    except jsonschema_rs.ValidationError as error:
        raise _refusal(at + pointer(*error.instance_path), _shortened(error.message)) from None
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise _refusal(at, _shortened(str(error))) from None


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError("schemas are never fetched; put the definition under $defs")


def _check_size(schema: Any, at: str) -> None:
    """Bound depth, nodes and enums, level by level, so that no schema can exhaust the stack."""
    nodes = 0
    level: list[tuple[Any, str]] = [(schema, at)]
    for _ in range(MAX_DEPTH):
        below: list[tuple[Any, str]] = []
        for node, where in level:
            nodes += len(node)
            if isinstance(node, Mapping):
                choices = node.get("enum")
                if isinstance(choices, list) and len(choices) > MAX_ENUM:
                    raise _refusal(where + "/enum", f"an enum has more than {MAX_ENUM} values")
            below += [(child, where + pointer(key)) for key, child in _members(node) if _is_container(child)]
        if nodes > MAX_NODES:
            raise _refusal(at, f"the schema has more than {MAX_NODES} members")
        if not below:
            return
        level = below
    raise _refusal(level[0][1], f"the schema is nested more than {MAX_DEPTH} levels deep")


def _check_paths(schema: Mapping[str, Any], at: str) -> None:
    try:
        paths = SchemaPaths(schema, MAX_PATHS).through()
    except Unfollowable as error:
        raise _refusal(at, _shortened(str(error))) from None
    except RecursionError:
        raise _refusal(at, "its references form too long a chain") from None
    if paths > MAX_PATHS:
        raise _refusal(at, f"its parts lead to one value by more than {MAX_PATHS} ways")


def _members(node: Any) -> Iterator[tuple[str | int, Any]]:
    return iter(node.items()) if isinstance(node, Mapping) else iter(enumerate(node))


def _is_container(node: Any) -> bool:
    return isinstance(node, Mapping | list)


def _shortened(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"


def _refusal(at: str, message: str) -> InvalidSchema:
    return InvalidSchema(
        f"invalid JSON Schema: {message}", errors=[FieldError(at, message, "invalid_schema")]
    )
