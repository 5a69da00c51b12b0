"""The limits on an expression, and that the library reads a text as the measure does."""

from __future__ import annotations

import cel
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from app.adapters.cel_shape import (
    MAX_CHARACTERS,
    MAX_COMMAS,
    MAX_DEPTH,
    MAX_LOOP,
    Unmeasurable,
    loop_variable,
)

LETTER = r"\pL"
LONGEST = "'" + "a" * (MAX_CHARACTERS - 2) + "'"


def nested(levels: int) -> str:
    return "(" * levels + "1" + ")" * levels


@pytest.mark.parametrize(
    "text",
    [
        LONGEST,
        nested(MAX_DEPTH),
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        "1" + " + 1" * MAX_DEPTH,
        "a" + ".b" * MAX_DEPTH,
        "a" + "[0]" * MAX_DEPTH,
        "a" + ".b()" * MAX_DEPTH,
        "true ? 1 : " * MAX_DEPTH + "1",
        "-" * MAX_DEPTH + "1",
        "a.b.c + a.b.c - a.b.c" + " * a.b.c" * (MAX_DEPTH - 4),
        " && ".join(["a.b == 1"] * 100),
        " || ".join(["(a.b == 1 && c)"] * 100),
        "[" + "a ? 1 : 2, " * MAX_COMMAS + "]",
        "{" + ", ".join(f"'{n}': a.b * 1" for n in range(MAX_COMMAS)) + "}",
        "a" + ", a" * MAX_COMMAS,
        " || ".join(["a.matches('b')"] * 80),
        r"a.matches(r'(?i)rate.?limit|\d{4}-\d{2}-\d{2}|quota exceeded|[a-z]{1,20} (\w+) again')",
        f"a.matches('{'x' * 1_900}')",
        "[1].all(x, " + "x" * (MAX_LOOP - 3) + ")",
        "[1].map(x, x > 1, x) == a.map",
        "a.b.c.matches('d') || 'a'.matches('b') || (a.matches('b'))",
        "[" + "a + a, " * 30 + "]",
        "a.b('x.map(y, y.all(z, z))', \"'\", r'\\', '\\'.map(', '''.map('.map(''')",
        "['a'.matches('a')].all(x, x)",
        "map + filter.all - exists // .map(x, y.map(",
        "a in [1, 2]",
    ],
)
def test_what_costs_little_is_taken(text: str) -> None:
    loop_variable(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LONGEST + " ", "2001 characters"),
        (nested(MAX_DEPTH + 1), "levels deep"),
        (nested(900), "levels deep"),
        ("[" * 21 + "]" * 21, "levels deep"),
        ("1" + " + 1" * 21, "levels deep"),
        ("(" * 10 + "1" + " + 1)" * 10 + " + 1", "levels deep"),
        ("a" + ".b" * 21, "levels deep"),
        ("a" + "[0]" * 21, "levels deep"),
        ("a" + ".b()" * 21, "levels deep"),
        ("true ? 1 : " * 21 + "1", "levels deep"),
        ("-" * 21 + "1", "levels deep"),
        ("[1, [" + "1, " + nested(19) + "]]", "levels deep"),
        ("a" + ", a" * (MAX_COMMAS + 1), "64 times ','"),
        (r"a.matches(r'(\w{20}){20}')", "patterns are too long"),
        (r"a.matches(r'((a{20}) {20}){20}')", "patterns are too long"),
        (r"a.matches(r'a{20}{20}{20}')", "patterns are too long"),
        (r"a.matches('\\w\x7b99\x7d')", "patterns are too long"),
        ("a.matches(r'''(?x) \\w{# 9\n 99}''')", "patterns are too long"),
        (r"a.matches(r'\w{99,}')", "patterns are too long"),
        (" || ".join([r"a.matches(r'\w{45}')"] * 2), "patterns are too long"),
        (f"a.matches(r'{LETTER * 80}')", "patterns are too long"),
        (f"a.matches('{'[À-῿]' * 80}')", "patterns are too long"),
        ("(a + b).matches('c')", "needs a variable"),
        ("{'a': a + b}.a.matches('c')", "needs a variable"),
        ("a[0].b.matches('c')", "needs a variable"),
        ("a().b.matches('c')", "needs a variable"),
        ("matches('c')", "needs a variable"),
        ("[" + "a + a, " * 31 + "]", "30 times '+'"),
        ("a.matches(a)", "a pattern that is one string"),
        ("a.matches('a' + '{99}')", "a pattern that is one string"),
        ("a.matches(", "a pattern that is one string"),
        ("[1].all(x, " + "x" * (MAX_LOOP - 2) + ")", "body has more than 100"),
        ("[1].map(x, [1].map(y, y))", "second loop at character 16"),
        ("[1].map(x, x).filter(y, y)", "second loop at character 15"),
        ("[1].all(x, x > 0) || [1].exists(x, x > 0)", "second loop"),
        ("[1].exists_one(x, x > 0) || [1].existsOne(x, x > 0)", "second loop"),
        ("'\\''.map(x, x).map(x, '')", "second loop"),
        ("r'\\'.map(x, x).map(x, '')", "second loop"),
        ("'''''a'''.map(x, x).map(x, '')", "second loop"),
        ("[1]. // '\n map\n( x, x). map (x, '')", "second loop"),
        ("['a'].all(x, x.matches('x'))", "`matches` at character 16 would be called in a loop"),
        ("['a'].all(x, [[x.matches('x')]][0][0])", "in a loop"),
        ("(1]", "closes"),
        ("1)", "closes"),
        ("(1", "')' is missing"),
        ("{[1}", "closes"),
        ("'abc", "character 1 belongs"),
        ("a ; b", "';' at character 3 belongs"),
        ("a.`map`(x, x)", "'`' at character 3"),
        ("é", "'é' at character 1"),
        ("a\u00a0b", "at character 2"),
        ("@result", "'@'"),
        ('"a\nb"', "at character 1"),
    ],
)
def test_what_may_cost_much_is_refused(text: str, words: str) -> None:
    with pytest.raises(Unmeasurable) as refused:
        loop_variable(text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [("1", None), ("[1].map(x, x)", "x"), ("[1].exists ( yes , yes)", "yes"), ("a.map", None)],
)
def test_the_loop_names_its_variable(text: str, name: str | None) -> None:
    assert loop_variable(text) == name


INSIDE = st.lists(
    st.sampled_from(
        ["'", "''", '"', "\\\\", "\\'", '\\"', "\\x41", "\n", "r'", "//", "a", "é", ".map(x, x)"]
    ),
    max_size=6,
).map("".join)
QUOTED = st.tuples(
    st.sampled_from(["", "r", "R", "b", "bR", "rb"]), st.sampled_from(["'", '"', "'''", '"""']), INSIDE
).map(lambda parts: f"{parts[0]}{parts[1]}{parts[2]}{parts[1]}")


@settings(max_examples=500)
@given(st.lists(QUOTED, min_size=1, max_size=3), st.sampled_from(["", ".map(x, x)", " // .map(x, x)"]))
def test_no_loop_hides_in_what_only_the_measure_takes_for_a_string(texts: list[str], end: str) -> None:
    text = " + ".join(texts) + end
    try:
        binds = "x" in cel.compile(text).variables()
    except ValueError:
        event("the library cannot read it")
        return
    event(f"a loop: {binds}")
    try:
        measured = loop_variable(text)
    except Unmeasurable as refused:
        measured = str(refused)[:22]
    assert measured in (("x", "there is a second loop") if binds else (None,))
