"""JSON Schemas from clients: bounded, never fetched, and faults with pointers."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import Category
from app.core.json_schema import (
    CACHED_WEIGHT,
    MAX_ERRORS,
    MAX_MESSAGE,
    MAX_VISITS,
    InvalidSchema,
    JsonSchema,
    SchemaError,
    compile_schema,
)
from app.core.json_schema_limits import MAX_BYTES, MAX_DEPTH, MAX_ENUM, MAX_NODES, MAX_PROPERTIES


def doubling(levels: int) -> dict[str, Any]:
    """Each definition applies the one before it twice."""
    defs: dict[str, Any] = {"l/0": {"type": "string"}}
    for level in range(1, levels + 1):
        defs[f"l/{level}"] = {"allOf": [{"$ref": f"#/$defs/l~1{level - 1}"}] * 2}
    return {"$defs": defs, "$ref": f"#/$defs/l~1{levels}"}


def doubling_inside(levels: int, word: str = "allOf") -> dict[str, Any]:
    """Each definition looks into the same member twice."""
    defs: dict[str, Any] = {f"l{levels}": {"type": "string"}}
    for level in range(levels):
        branch = {"properties": {"a": {"$ref": f"#/$defs/l{level + 1}"}}}
        defs[f"l{level}"] = {word: [branch, branch]}
    return {"$defs": defs, "$ref": "#/$defs/l0"}


def doubling_by_anchors(levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {"l0": {"$anchor": "l0", "type": "string"}}
    for level in range(1, levels + 1):
        defs[f"l{level}"] = {"$anchor": f"l{level}", "allOf": [{"$ref": f"#l{level - 1}"}] * 2}
    return {"$defs": defs, "$ref": f"#l{levels}"}


def chain(length: int) -> dict[str, Any]:
    defs: dict[str, Any] = {"l0": {"type": "string"}}
    for link in range(1, length):
        defs[f"l{link}"] = {"$ref": f"#/$defs/l{link - 1}"}
    return {"$defs": defs, "$ref": f"#/$defs/l{length - 1}"}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "at", "words"),
    [
        (True, "", "accepts everything"),
        (False, "", "accepts nothing"),
        ([], "", "is an object"),
        ("{}", "", "is an object"),
        ({"type": "bogus"}, "/type", "bogus"),
        ({"properties": {"a/b": {"type": 3}}}, "/properties/a~1b/type", "3"),
        ({"type": ["string", "strong"]}, "/type", "is no type"),
        ({"required": "title"}, "/required", "array"),
        ({"properties": {"a": {"required": True}}}, "/properties/a/required", "list of names"),
        ({"properties": []}, "/properties", "object"),
        ({"items": [{"type": "string"}]}, "/items", "prefixItems"),
        ({"minimum": 0, "exclusiveMinimum": True}, "/exclusiveMinimum", "draft-04"),
        ({"maximum": 0, "exclusiveMaximum": False}, "/exclusiveMaximum", "in place of `maximum`"),
        ({"$schema": "http://127.0.0.1:9/own"}, "/$schema", "only the drafts"),
        ({"$schema": 7}, "/$schema", "only the drafts"),
        ({"$ref": "http://127.0.0.1:9/schema"}, "/$ref", "never fetched"),
        ({"$ref": "file:///etc/passwd"}, "/$ref", "never fetched"),
        ({"items": {"$ref": "other.json"}}, "/items/$ref", "never fetched"),
        ({"items": {"$dynamicRef": "other.json#x"}}, "/items/$dynamicRef", "never fetched"),
        ({"$id": "http://127.0.0.1:9/a", "not": {"$ref": "b"}}, "/not/$ref", "never fetched"),
        ({"$defs": {"a/b": {"$ref": "b.json"}}}, "/$defs/a~1b/$ref", "never fetched"),
        ({"definitions": {"a": {"$ref": "#/b"}}}, "/definitions/a/$ref", "leads to no schema"),
        ({"items": {"$id": "inner", "$ref": "#"}}, "/items/$id", "$id"),
        ({"$ref": "#nowhere"}, "/$ref", "nowhere"),
        ({"$ref": "#x", "$defs": {"a": {"$anchor": "x"}, "b": {"const": {"$anchor": "x"}}}}, "/$ref", "#x"),
        ({"$ref": "#/enum/0", "enum": [1]}, "/$ref", "leads to no schema"),
        ({"$ref": "#/$defs/missing"}, "/$ref", "missing"),
        ({"$ref": "#/$defs/geo/city~v2", "$defs": {"geo/city~v2": {}}}, "/$ref", "leads to no schema"),
        ({"pattern": "(?=a)b"}, "/pattern", "linear time"),
        ({"pattern": "(a)\\1"}, "/pattern", "no back-references"),
        ({"pattern": "("}, "/pattern", "no pattern"),
        ({"patternProperties": {"(?<!a)b": {}}}, "/patternProperties/(?<!a)b", "linear time"),
        ({"pattern": "(a{1000}){1000}"}, "/pattern", "no pattern"),
        ({"prefixItems": [{"pattern": f"\\p{{L}}{{90}}{n}"} for n in range(9)]}, "", "too large"),
        ({"prefixItems": [{"pattern": f"a{n}"} for n in range(300)]}, "", "too many patterns"),
        ({"properties": {"x": {"enum": list(range(MAX_ENUM + 1))}}}, "/properties/x/enum", "enum"),
        ({"description": "x" * MAX_BYTES}, "", "bytes"),
        ({"required": [str(n) for n in range(MAX_NODES)]}, "", "members"),
        ({"properties": {f"p{n}": {} for n in range(MAX_PROPERTIES + 1)}}, "", "properties"),
        (
            {"items": [{"properties": {f"p{n}": {}, "q": {}}} for n in range(MAX_PROPERTIES)]},
            "",
            "properties",
        ),
        (deep(MAX_DEPTH), "/items" * MAX_DEPTH, "levels deep"),
        (deep(3_000), "/items" * MAX_DEPTH, "levels deep"),
        (doubling(40), "", "one value"),
        (doubling_by_anchors(40), "", "one value"),
        (doubling_inside(40), "", "one value"),
        (doubling_inside(40, "anyOf"), "", "one value"),
        (chain(2_000), "", "chain"),
        ({"const": {1, 2}}, "", "no JSON value"),
    ],
)
def test_a_schema_that_is_not_taken_is_refused_with_its_place(schema: Any, at: str, words: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        compile_schema(schema, at="/response_format")
    (fault,) = refused.value.errors
    assert fault.pointer == "/response_format" + at
    assert words in fault.message
    assert refused.value.code == fault.code == "invalid_schema"
    assert refused.value.category is Category.INVALID
    assert len(fault.message) <= MAX_MESSAGE


@pytest.mark.parametrize(
    "schema",
    [
        deep(MAX_DEPTH - 1),
        doubling(10),
        doubling_inside(10),
        chain(200),
        {"enum": list(range(MAX_ENUM))},
        {"$id": "https://example.org/s", "$ref": "#/$defs/a%20b", "$defs": {"a b": {"$ref": "#"}}},
        {"$ref": "#x", "$defs": {"a": {"$anchor": "x"}}},
        {"properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}},
        {"$ref": "#"},
        {"default": {"$ref": "other.json"}, "examples": [{"$id": "x"}], "const": {"pattern": "("}},
        {"format": "no-such-format", "nullable": True, "x-ours": [1]},
        {"pattern": "^[\\p{L}\\p{N}_-]{1,64}$"},
        {"$schema": "https://spec.openapis.org/oas/3.1/dialect/base", "type": "string"},
        {},
    ],
)
def test_schemas_within_the_bounds_are_taken(schema: dict[str, Any]) -> None:
    compile_schema(schema).check([])


def test_every_fault_is_told_with_a_pointer() -> None:
    schema = compile_schema(
        {
            "type": "object",
            "properties": {
                "title": {},
                "a/b": {"type": "integer"},
                "l": {"items": {"enum": ["low", "high"]}},
            },
            "required": ["title"],
            "additionalProperties": False,
        }
    )
    value = {"a/b": "7", "l": ["low", "HIGH"], "extra": 1}
    assert not schema.accepts(value)
    faults = schema.check(value)
    assert {fault.pointer for fault in faults} == {"", "/a~1b", "/l/1"}
    told = " ".join(fault.message for fault in faults)
    for word in ("title", "extra", '"HIGH"', '"7"'):
        assert word in told
    assert schema.accepts({"title": 1})
    assert schema.check({"title": 1}) == []


def test_faults_are_counted_and_their_messages_cut() -> None:
    schema = compile_schema({"items": {"type": "integer"}})
    faults = schema.check(["x" * 10_000] * 500)
    assert len(faults) == MAX_ERRORS
    assert {len(fault.message) for fault in faults} == {MAX_MESSAGE}
    assert schema.check(["x"] * 5, limit=2) == [
        SchemaError(f"/{index}", '"x" is not of type "integer"') for index in range(2)
    ]


def tree(depth: int, leaf: Any) -> Any:
    value = leaf
    for _ in range(depth):
        value = {"kind": "e", "child": value}
    return value


def test_alternatives_that_refer_to_each_other_cannot_make_the_faults_endless() -> None:
    kinds = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}, "child": {"$ref": "#"}},
            "required": ["kind", "child"],
        }
        for kind in "abcde"
    ]
    schema = compile_schema({"anyOf": [*kinds, {"type": "integer"}]})
    assert schema.accepts(tree(30, 1))
    assert [fault.pointer for fault in schema.check(tree(2, "x"))] == [""]
    (fault,) = schema.check(tree(30, "x"))
    assert "too many alternatives" in fault.message


def test_a_large_value_with_few_alternatives_is_told_where_it_fails() -> None:
    entry = {"type": "object", "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}
    schema = compile_schema({"type": "array", "items": entry})
    value: list[Any] = [{"n": n} for n in range(5_000)]
    assert schema.check(value) == []
    value[4_000] = {"n": "x"}
    assert [fault.pointer for fault in schema.check(value)] == ["/4000/n"]


def test_a_pattern_runs_in_linear_time() -> None:
    assert not compile_schema({"pattern": "^(a+)+$"}).accepts("a" * 50_000 + "!")


def test_integers_of_any_size_are_integers() -> None:
    schema = compile_schema({"type": "integer", "minimum": 10**30})
    assert schema.accepts(10**30)
    assert not schema.accepts(10**30 - 1)


def test_one_schema_is_compiled_once_and_others_do_not_disturb_it() -> None:
    first = compile_schema({"type": "integer", "minimum": 3})
    assert compile_schema({"minimum": 3, "type": "integer"}) is first
    for number in range(1_000):
        other = compile_schema({"const": number})
        assert other.accepts(number)
        assert not other.accepts(number + 1)
    assert compile_schema({"minimum": 3, "type": "integer"}).accepts(3)


@given(st.integers(), st.integers())
def test_the_cache_never_confuses_two_schemas(one: int, other: int) -> None:
    assert compile_schema({"const": one}).accepts(other) == (one == other)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*a){20}"])
def test_patterns_that_others_backtrack_on_are_matched_at_once(pattern: str) -> None:
    for schema in ({"pattern": pattern}, {"propertyNames": {"pattern": pattern}}):
        value: Any = "a" * 20_000 + "!"
        compile_schema(schema).accepts(value if "pattern" in schema else {value: 1})
    named = compile_schema(
        {"patternProperties": {pattern: {"type": "string"}}, "additionalProperties": False}
    )
    assert named.accepts({"a" * 40 + "!": 1}) is False


def test_a_value_that_is_too_large_for_its_alternatives_is_refused_unseen() -> None:
    schema = compile_schema({"items": {"anyOf": [{"const": n} for n in range(1_000)]}})
    assert schema.accepts([999] * 100)
    large = [999] * (MAX_VISITS // 1_000 + 1)
    assert not schema.accepts(large)
    (fault,) = schema.check(large)
    assert "too large" in fault.message


def test_schemas_that_weigh_much_do_not_pile_up() -> None:
    kept = weakref.WeakSet[JsonSchema]()
    for number in range(CACHED_WEIGHT // 96 * 2):
        kept.add(compile_schema({"pattern": f"^\\p{{L}}{{90}}{number}$"}))
    assert 0 < len(kept) <= CACHED_WEIGHT // 96 + 1


@pytest.mark.parametrize(
    ("value", "ok"), [(0.07, True), (19.99, True), (0.075, False), (1e308, True), (3, True), (10**30, True)]
)
def test_multiples_are_decimal(value: float, ok: bool) -> None:
    assert compile_schema({"multipleOf": 0.01}).accepts(value) is ok


def test_formats_are_noted_and_not_checked() -> None:
    schema = compile_schema({"items": {"type": "string", "format": "email"}})
    assert schema.check(["." * 100_000, "someone@example.org", ""]) == []


def test_names_that_look_alike_are_two_and_a_name_is_no_reference() -> None:
    schema = compile_schema(
        {
            "properties": {
                "\u00e9": {"type": "integer"},
                "e\u0301": {"type": "string"},
                "$ref": {"type": "string"},
                "": {"type": "integer"},
                "a~/b": {"type": "integer"},
            },
            "required": ["$ref"],
        }
    )
    assert schema.check({"\u00e9": 1, "e\u0301": "x", "$ref": "#/nowhere", "": 1, "a~/b": 2}) == []
    wrong = schema.check({"\u00e9": "x", "$ref": 1, "": "", "a~/b": ""})
    assert [fault.pointer for fault in wrong if "type" in fault.message].count("/") == 1
    assert {fault.pointer for fault in wrong} == {"/\u00e9", "/$ref", "/", "/a~0~1b"}


def test_members_without_a_name_have_their_place() -> None:
    inner = {"additionalProperties": {"items": {"type": "integer"}}}
    schema = compile_schema({"properties": {"": {"type": "integer"}, "a": inner}})
    faults = schema.check({"": "x", "a": {"": ["x", 1, "x"], "b": ["x"]}})
    assert {fault.pointer for fault in faults} == {"/", "/a//0", "/a//2", "/a/b/0"}
