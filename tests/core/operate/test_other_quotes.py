"""Values in Python's or a typesetter's quotes: read when there is one way to, else not at all."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.operate.extract import extract
from app.core.operate.other_quotes import in_json_quotes


@pytest.mark.parametrize(
    ("text", "value", "corrections"),
    [
        ("{'a': 1}", {"a": 1}, ("quotes",)),
        ("""{'a': "it's", "b": 'say "hi"'}""", {"a": "it's", "b": 'say "hi"'}, ("quotes",)),
        (r"{'a': 'it\'s', 'b': 'x\\', 'c': '\n\u00e4'}", {"a": "it's", "b": "x\\", "c": "\nä"}, ("quotes",)),
        ('{"a": True, "b": [False, None]}', {"a": True, "b": [False, None]}, ("python_words",)),
        ("[None, 'None', 'True story']", [None, "None", "True story"], ("python_words", "quotes")),
        ("{'a': [1, 2,],}", {"a": [1, 2]}, ("quotes", "trailing_comma")),
        ("{“a”: “she said ‘hi’”}", {"a": "she said ‘hi’"}, ("quotes",)),
        ('{“a”: “5" wide”}', {"a": '5" wide'}, ("quotes",)),
        ("```python\n{'a': '}'}\n```", {"a": "}"}, ("fence", "quotes")),
        ("```\n{'a': 1}\n```", {"a": 1}, ("fence", "quotes")),
    ],
)
def test_what_is_read(text: str, value: Any, corrections: tuple[str, ...]) -> None:
    (found,) = extract(text).found
    assert (found.value, found.corrections) == (value, corrections)


@pytest.mark.parametrize(
    "text",
    [
        "{'a': 'it's'}",
        "{'a': 'x}",
        "{'a': 'two\nlines'}",
        r"{'a': '\x41'}",
        "{'a': (1, 2)}",
        "{'a': 0x1F}",
        "{'a': 1_000}",
        "{'a': undefined}",
        "{'a': 1} and {'b': 2}",
        "so {'a': 1}",
        "{'a': 1, 'a': 2}",
        "{“a”: “she said “hi””}",
        "{True}",
        "{'a'}",
        "```bash\n{'a': 1}\n```",
        "{Nonesuch: 1}",
    ],
)
def test_what_is_not(text: str) -> None:
    assert extract(text).found == ()


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a": "“quoted” \'so\' True"}', '{"a": 1,}', ""])
def test_what_needs_no_other_quotes_is_left(text: str) -> None:
    assert in_json_quotes(text) is None


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab'\"\\ ,}{]:", max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text("ab'\"", max_size=3), plain, min_size=1, max_size=3))
def test_what_python_writes_is_read_back(value: dict[str, Any]) -> None:
    (found,) = extract(repr(value)).found
    assert found.value == value


@pytest.mark.parametrize(
    "piece", ["'", "{'", "'a', ", "“", "“”", "\\'", ",  ", "True", "T", "'\\", "{“a”: 'b',}\n"]
)
def test_it_takes_linear_time(piece: str) -> None:
    def seconds(length: int) -> float:
        text = "{" + piece * (length // len(piece)) + "}"
        took = []
        for _ in range(5):
            began = time.thread_time()
            in_json_quotes(text)
            took.append(time.thread_time() - began)
        return min(took)

    # Ten times the text may take forty times as long, never a hundred times; the constant covers the clock.
    assert seconds(200_000) < 40 * seconds(20_000) + 0.05
