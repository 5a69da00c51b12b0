"""What stands between tags is taken out of the text, wherever the pieces are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.chat_completions.inline_tags import TagSplitter, call_in

Parts = dict[str, list[str]]


def split(*pieces: str, limit: int = 10_000) -> Parts:
    """Text and thoughts joined, tool calls one by one."""
    splitter = TagSplitter(("think", "tool_call"), limit)
    passages = [passage for piece in pieces for passage in splitter.feed(piece)] + list(splitter.finish())
    parts: Parts = {"text": [""], "think": [""], "tool_call": []}
    for passage in passages:
        if passage.kind == "tool_call":
            parts["tool_call"].append(passage.text)
        else:
            parts[passage.kind][0] += passage.text
    return parts


def parts(text: str, think: str = "", *calls: str) -> Parts:
    return {"text": [text], "think": [think], "tool_call": list(calls)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("plain", parts("plain")),
        ("  spaces around \n", parts("  spaces around \n")),
        ("a < b <thin> <tool> </think>", parts("a < b <thin> <tool> </think>")),
        ("<think>plan</think>\n\nanswer", parts("answer", "plan")),
        ("<think>plan</think>", parts("", "plan")),
        ("\n<think>\nplan\n</think>\n", parts("", "\nplan\n")),
        ("<think>a < b </thin> <think></think>c", parts("c", "a < b </thin> <think>")),
        ("<think>never closed </thi", parts("", "never closed </thi")),
        ("one <think>x</think> two", parts("one two", "x")),
        ("one<think>x</think> two", parts("one two", "x")),
        ("one<think>x</think>two", parts("onetwo", "x")),
        ("one\n<think>x</think>\n\n<think>y</think> two\n", parts("one\ntwo\n", "xy")),
        ("Look. <tool_call>\n{1}\n</tool_call>", parts("Look.", "", "\n{1}\n")),
        ("Look. <tool_call>{1}</tool_call>\n<tool_call>{2}</tool_call>\n", parts("Look.", "", "{1}", "{2}")),
        ("<tool_call>{1}</tool_call>\nDone.", parts("Done.", "", "{1}")),
        ("Look.\n<tool_call>{1}</tool_call> Done.", parts("Look.\nDone.", "", "{1}")),
        ("<tool_call>{never", parts("", "", "{never")),
        ("<think>a</think><tool_call>{1}</tool_call>", parts("", "a", "{1}")),
        ("ends in a tag <tool_cal", parts("ends in a tag <tool_cal")),
        ("", parts("")),
    ],
)
def test_split(source: str, expected: Parts) -> None:
    assert split(source) == expected
    assert split(*source) == expected
    for at in range(len(source)):
        assert split(source[:at], source[at:]) == expected, at


words = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", "<", "</", "think>", " ", "\n", "a", "bc", "🦦"]
)


@given(st.lists(words, max_size=14).map("".join), st.lists(st.integers(0, 80), max_size=6))
def test_cuts_change_nothing_and_nothing_is_lost(source: str, cuts: list[int]) -> None:
    borders = sorted({min(cut, len(source)) for cut in cuts} | {0, len(source)})
    pieces = [source[a:b] for a, b in itertools.pairwise(borders)]
    found = split(*pieces)
    assert found == split(source)
    said = "".join("".join(texts) for texts in found.values())
    for tag in ("<think>", "</think>", "<tool_call>", "</tool_call>"):
        source = source.replace(tag, "")
    assert {char for char in source if not char.isspace()} <= set(said) | set("<>/think_calo")


def test_text_is_given_as_soon_as_it_cannot_be_a_tag() -> None:
    splitter = TagSplitter(("think",), 100)
    assert [passage.text for passage in splitter.feed("visible <")] == ["visible"]
    assert [passage.text for passage in splitter.feed("3")] == [" <3"]


def test_a_tool_call_over_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 50 characters"):
        split("<tool_call>", *["x" * 10] * 6, limit=50)


@pytest.mark.parametrize(
    ("block", "call"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', ("f", '{"a":1}')),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', ("f", '{"a": 1}')),
        ('{"name": "f"}', ("f", "{}")),
        (
            '{"name": "f", "arguments": {"n": 12345678901234567890123}}',
            ("f", '{"n":12345678901234567890123}'),
        ),
        ('{"name": "f", "arguments": {"a": ', ("f", '{"name": "f", "arguments": {"a": ')),
        ("f(a=1)", (None, "f(a=1)")),
        ('[{"name": 5}]', (None, '[{"name": 5}]')),
        ('{"name": 5}', (None, '{"name": 5}')),
    ],
)
def test_the_call_between_tags(block: str, call: tuple[str | None, str]) -> None:
    assert call_in(block) == call
