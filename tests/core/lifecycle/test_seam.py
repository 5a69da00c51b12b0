"""Where a resumed answer meets its checkpoint: what is taken off it, and when it is held back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.lifecycle.seam import Seam

LIMITS = {"min_overlap": 2, "max_overlap": 500}


def joined(checkpoint: str, chunks: Sequence[str], **limits: int) -> tuple[str, str | None]:
    """The text that the client ends with, and the fault that was found instead of it."""
    seam, out, settled = Seam(checkpoint, **{**LIMITS, **limits}), "", None
    for chunk in chunks:
        if settled is not None:
            out += chunk
            continue
        settled = seam.take(chunk)
        if settled is not None:
            out += "".join(settled.pieces)
    if settled is None:
        settled = seam.end()
        out += "".join(settled.pieces)
    return checkpoint + out, settled.fault


JOINED = [
    pytest.param("The quick brown ", ["quick ", "brown ", "fox"], "The quick brown fox", id="over tokens"),
    pytest.param("Hello wor", ["world", "!"], "Hello world!", id="inside a chunk"),
    pytest.param("One two ", ["three"], "One two three", id="none"),
    pytest.param("a b c d e f", [" e", " f", " g"], "a b c d e f g", id="words in pieces"),
    pytest.param("Grüße aus Kö", ["us Kö", "ln"], "Grüße aus Köln", id="letters of several bytes"),
    pytest.param("東京は日本の", ["日本の", "首都"], "東京は日本の首都", id="han"),
    pytest.param('{"name": "Ada Lo', ["Ada ", 'Lovelace"}'], '{"name": "Ada Lovelace"}', id="in a string"),
    pytest.param('{"a": "x\\', ['"x\\', '"y"}'], '{"a": "x\\"y"}', id="in an escape"),
    pytest.param("abab", ["ab", "ab", "c"], "ababc", id="the whole, not its half"),
    pytest.param("x", ["x", "yz"], "xyz", id="the whole, however short"),
    pytest.param("# Tides\nThe moon pulls the oc", ["# Tides\nThe moon ", "pulls the ocean."],
                 "# Tides\nThe moon pulls the ocean.", id="a new start"),
    pytest.param("team: 👩\u200d", ["\u200d👧 done"], "team: 👩\u200d👧 done", id="one joiner"),
    pytest.param("cafe", ["\u0301 open"], "cafe\u0301 open", id="an accent follows"),
    pytest.param("cafe\u0301", ["\u0301 open"], "cafe\u0301 open", id="an accent twice"),
    pytest.param("line\r", ["\nnext"], "line\r\nnext", id="half a line end"),
    pytest.param("to be or not", ["not"], "to be or not", id="nothing but the overlap"),
    pytest.param("She said: ", ["Sure, I will come."], "She said: Sure, I will come.", id="no remark"),
    pytest.param("He asked her. ", ["Certainly not."], "He asked her. Certainly not.", id="no remark either"),
    pytest.param("- item one is good\n", ["- item one is ", "bad\n"],
                 "- item one is good\n- item one is bad\n", id="the next of a list"),
    pytest.param('The song: "', ["Let me go on, ", 'let me sing"'],
                 'The song: "Let me go on, let me sing"', id="a song"),
    pytest.param("a", ["b"], "ab", id="short"),
    pytest.param("ends in e", ["e"], "ends in ee", id="one letter is no overlap"),
]  # fmt: skip


@pytest.mark.parametrize(("checkpoint", "chunks", "text"), JOINED)
def test_what_is_repeated_is_taken_off(checkpoint: str, chunks: list[str], text: str) -> None:
    assert joined(checkpoint, chunks) == (text, None)


@pytest.mark.parametrize(("checkpoint", "chunks", "text"), JOINED)
def test_it_does_not_matter_how_the_answer_is_cut(checkpoint: str, chunks: list[str], text: str) -> None:
    assert joined(checkpoint, list("".join(chunks))) == (text, None)
    assert joined(checkpoint, ["".join(chunks)]) == (text, None)


@pytest.mark.parametrize(
    ("checkpoint", "chunks"),
    [
        ("# Tides\nThe moon pulls the oc", ["Sure! Here is ", "the rest: ean, so water rises."]),
        ("# Tides\nThe moon pulls the oc", ["Continuing from where I stopped: ean"]),
        ("The list is 1, 2, 3", ["I'll continue the list: ", "4, 5"]),
        ("The river rises in the hills and flows", ["The river rises in the mountains, far away"]),
    ],
    ids=["remark", "continuing", "announcement", "another start"],
)
def test_what_does_not_go_on_is_told_not_glued(checkpoint: str, chunks: list[str]) -> None:
    assert joined(checkpoint, chunks)[1] is not None
    assert joined(checkpoint, list("".join(chunks)))[1] is not None


def test_text_that_can_be_no_overlap_is_not_held_back() -> None:
    settled = Seam("One two ", **LIMITS).take("three")
    assert settled is not None
    assert (settled.pieces, settled.overlap) == (("three",), 0)


def test_each_chunk_that_was_held_comes_out_as_its_own_piece() -> None:
    seam = Seam("abcd", **LIMITS)
    assert seam.take("b") is None
    settled = seam.take("x")
    assert settled is not None
    assert settled.pieces == ("b", "x")


def test_an_overlap_outside_the_limits_is_part_of_the_answer() -> None:
    assert joined("one two", [" two", "!"], max_overlap=3)[0] == "one two two!"
    assert joined("one two", ["two", "!"], min_overlap=4)[0] == "one twotwo!"


letters = st.text("ab \u0301é🦦", max_size=12)


@given(letters.filter(bool), letters, st.data())
def test_the_cut_is_the_longest_overlap_however_the_answer_comes(
    checkpoint: str, answer: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=4)))
    chunks = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True) if a < b]
    text, fault = joined(checkpoint, chunks)
    whole, same_fault = joined(checkpoint, [answer] if answer else [])
    assert (text, fault) == (whole, same_fault)
    if fault is None:
        assert text.startswith(checkpoint)
        assert (checkpoint + answer).endswith(text[len(checkpoint) :])
        overlaps = [n for n in range(2, len(answer) + 1) if checkpoint.endswith(answer[:n])]
        if overlaps:
            assert text == checkpoint + answer[max(overlaps) :]


@given(st.text(min_size=1, max_size=40), st.text(max_size=20), st.integers(2, 40))
def test_an_answer_that_repeats_the_end_is_joined_without_a_trace(
    checkpoint: str, rest: str, repeated: int
) -> None:
    again = checkpoint[-repeated:]
    text, fault = joined(checkpoint, [again + rest])
    # A longer overlap than the one meant can only be found where the text repeats itself.
    if fault is None and len(again) >= 2:
        assert len(text) <= len(checkpoint + rest)
        assert text == checkpoint + rest or checkpoint.endswith((again + rest)[: len(again) + 1])
