"""From a model's text to a value: what is mended, what is not, and what is told of it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events.structured import (
    AutoCorrectEnd,
    AutoCorrectStart,
    ParseEnd,
    ParseError,
    ParseStart,
    SchemaValidationEnd,
    SchemaValidationError,
    SchemaValidationStart,
)
from app.core.operate.extract import extract
from app.core.operate.read_output import CORRECTIONS, Reading, parse_output, read_output, reading_events
from app.core.operate.schema import AnswerContract, contract_for
from app.core.prompt import ToolSchema
from tests.conftest import DATA

BOOK = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["title", "score"],
    "additionalProperties": False,
}
GOOD = {"title": "Fjord", "score": 4}
JSON = json.dumps(GOOD)


def contract(schema: Any = BOOK) -> AnswerContract:
    made = contract_for(schema, reason=False)
    assert made is not None
    return made


def reading_of(text: str, schema: Any = BOOK, finish_reason: str | None = "stop") -> Reading:
    return read_output(text, contract(schema), finish_reason=finish_reason)


@pytest.mark.parametrize(
    ("text", "corrections"),
    [
        (JSON, []),
        (f"\n {JSON}\t", []),
        (f"\ufeff\u200b\n{JSON}\u00a0", ["blanks"]),
        (f"```json\n{JSON}\n```", ["fence"]),
        (f"```\n{JSON}\n```", ["fence"]),
        (f"```JSON\r\n{JSON}\r\n```\r\n", ["fence"]),
        (f"  ```json {JSON} ```", ["fence"]),
        (f"```json\n{JSON}", ["fence"]),
        (f"Sure!\n\n```json\n{JSON}\n```\nAnything else?", ["fence"]),
        (
            f"Run:\n```bash\necho ${{HOME}} && jq '{{a: 1}}' f\n```\nResult:\n```json\n{JSON}\n```\n",
            ["fence"],
        ),
        (f"```python\nx = {{'a': [1]}}\n```\n{JSON}", ["prose"]),
        (f"```json\nHere: {JSON}.\n```", ["fence"]),
        (f"Here is `the` result: {JSON}. Hope it helps!", ["prose"]),
        (f"Using {{HOME}} and [the list], I get {JSON}", ["prose"]),
        (f"First [1], then {JSON}", ["prose"]),
        ('{"title": "Fjord", "score": 4,}', ["trailing_comma"]),
        ('{"title": "Fjord", "score": 4 , \n}', ["trailing_comma"]),
        ('{"title": "Fjord",\u00a0"score": 4}', ["blanks"]),
        (f"{JSON}\n{JSON}", ["prose", "repeated"]),
        ('{"score": 4, "title": "Fjord"} ' + JSON, ["prose", "repeated"]),
        ('```json\n{"title": "Fjord", "score": 4,}\n```', ["fence", "trailing_comma"]),
    ],
)
def test_what_can_be_mended_without_guessing_is_mended_and_named(text: str, corrections: list[str]) -> None:
    reading = reading_of(text)
    assert reading.ok, reading.failure
    assert reading.value == GOOD
    assert list(reading.corrections) == corrections
    assert CORRECTIONS.keys() >= set(corrections)
    assert (reading.strict_error is None) == (not corrections)


def test_the_text_inside_strings_is_never_touched() -> None:
    for title in (
        "a, ]",
        "```json",
        "{x,}",
        "“quoted”",
        "use `print`",
        'say \\"hi\\",}',
        "\u00a0\u200b",
        "[1]",
    ):
        text = f'{{"title": "{title}", "score": 1,}}'
        reading = reading_of(text)
        assert reading.value == {"title": json.loads(f'"{title}"'), "score": 1}
        assert reading.corrections == ("trailing_comma",)


@pytest.mark.parametrize(
    ("text", "finish_reason", "code"),
    [
        ("", "stop", "EMPTY_OUTPUT"),
        (" \n\ufeff", "stop", "EMPTY_OUTPUT"),
        ("null", "stop", "EMPTY_OUTPUT"),
        ("```json\n```", "stop", "EMPTY_OUTPUT"),
        ("```json\nnull\n```", "stop", "EMPTY_OUTPUT"),
        ("", "length", "OUTPUT_TRUNCATED"),
        ("I cannot help with that.", "stop", "PARSE"),
        ("{'title': 'it's', 'score': [4]}", "stop", "PARSE"),
        ('{"title": "the "best" one", "score": 9}', "stop", "PARSE"),
        ('{"title": "Draft", "score": 1}\n{"title": "Final", "score": 2}', "stop", "PARSE"),
        (f"{JSON} and {{", "stop", "PARSE"),
        ('{"title": "Fjord", "score": 4', "stop", "PARSE"),
        ('{"title": "Fjord", "score": 4, "title": "x"}', "stop", "PARSE"),
        ('{"title": "Fjord", "score": NaN}', "stop", "PARSE"),
        (" ".join(f'{{"title": "t{n}", "score": {n}}}' for n in range(200)), "stop", "PARSE"),
        ('{"title": "Fjord", "score": 4', "length", "OUTPUT_TRUNCATED"),
        ('{"title": "Fjord", "score": 4', None, "OUTPUT_TRUNCATED"),
        (f"Draft: {JSON} and now the", "length", "OUTPUT_TRUNCATED"),
        (f"Draft: {JSON} and now the", None, "OUTPUT_TRUNCATED"),
        (f"{JSON}\n{{", "length", "OUTPUT_TRUNCATED"),
        ('{"title": "do [1] then [2]", "body": "echo [3] and', "length", "OUTPUT_TRUNCATED"),
        ("4", "stop", "SCHEMA_VALIDATION"),
        (f"[{JSON}]", "stop", "SCHEMA_VALIDATION"),
        ('{"title": "Fjord"}', "stop", "SCHEMA_VALIDATION"),
    ],
)
def test_what_cannot_be_mended_has_no_value(text: str, finish_reason: str | None, code: str) -> None:
    reading = reading_of(text, finish_reason=finish_reason)
    assert reading.failure is not None
    assert reading.failure.code == code
    assert reading.failure.kind == ("schema" if code == "SCHEMA_VALIDATION" else "extraction")
    if code != "SCHEMA_VALIDATION":
        assert reading.value is None
        assert not reading.checked


@pytest.mark.parametrize("finish_reason", ["length", None])
@pytest.mark.parametrize("text", [JSON, f"```json\n{JSON}\n```", f"{JSON[:-1]},}}", f"\ufeff{JSON}\n"])
def test_a_value_closed_by_its_own_bracket_is_whole_wherever_the_text_ended(
    text: str, finish_reason: str | None
) -> None:
    assert reading_of(text, finish_reason=finish_reason).value == GOOD


@pytest.mark.parametrize(("finish_reason", "ok"), [("stop", True), ("length", False), (None, False)])
def test_a_number_that_may_have_been_cut_off_is_none(finish_reason: str | None, ok: bool) -> None:
    assert reading_of("12", {"type": "integer"}, finish_reason).ok is ok


def test_null_is_a_value_where_the_schema_takes_it() -> None:
    reading = reading_of("null", {"type": ["object", "null"]})
    assert reading.ok
    assert reading.parsed
    assert reading.value is None


def test_of_several_values_the_only_fitting_one_is_meant() -> None:
    reading = reading_of(f'I considered {{"title": "x"}} but chose {JSON}')
    assert reading.value == GOOD


def test_every_fault_is_told_with_its_pointer() -> None:
    reading = reading_of('{"title": 1, "score": "7", "extra": 1}')
    assert reading.failure is not None
    assert {fault.pointer for fault in reading.failure.errors} == {"/title", "/score", ""}
    for part in ("/title", "/score", "extra"):
        assert part in reading.failure.message
    assert reading.value == {"title": 1, "score": "7", "extra": 1}


def test_what_cannot_be_stored_is_replaced() -> None:
    reading = reading_of('{"title": "smile \\ud83d and \\ude00", "score": 1}')
    assert reading.value == {"title": "smile \ufffd and \ufffd", "score": 1}
    assert reading.corrections == ("unstorable_characters",)
    assert reading_of('{"title": "\\ud83d\\ude00", "score": 1}').value == {"title": "😀", "score": 1}


def test_made_up_action_responses_are_gone_before_the_check() -> None:
    tool = ToolSchema("add", "", {"type": "object"})
    made = contract_for(BOOK, reason=False, tools=[tool])
    assert made is not None
    text = json.dumps({**GOOD, "action_requests": [], "action_responses": [{"output": "made up"}]})
    for around in (text, f"Look: {text}"):
        reading = read_output(around, made, finish_reason="stop")
        assert reading.value == {**GOOD, "action_requests": []}
        assert reading.ok
        assert reading.corrections[-1] == "made_up_responses"
        (told,) = [event for event in reading_events(reading) if isinstance(event, AutoCorrectEnd)]
        assert told.corrections == list(reading.corrections)


def test_without_validation_any_json_is_the_value() -> None:
    reading = read_output('{"x": 1}', contract(), finish_reason="stop", validate=False)
    assert reading.ok
    assert reading.value == {"x": 1}
    assert not reading.checked


PARSED = [ParseStart(len(JSON)), ParseEnd(2.0, True)]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (JSON, [*PARSED, SchemaValidationStart("Book"), SchemaValidationEnd(3.0, True)]),
        (
            f"```\n{JSON}\n```",
            [
                ParseStart(len(JSON) + 8),
                AutoCorrectStart(1),
                AutoCorrectEnd(2.0, True, True, 1, ["fence"]),
                ParseEnd(2.0, True),
                SchemaValidationStart("Book"),
                SchemaValidationEnd(3.0, True),
            ],
        ),
        ("", [ParseStart(0), ParseError("EMPTY_OUTPUT: the model gave no answer", None)]),
        (
            "[1]",
            [
                ParseStart(3),
                ParseEnd(2.0, True),
                SchemaValidationStart("Book"),
                SchemaValidationError(': [1] is not of type "object"', [': [1] is not of type "object"']),
            ],
        ),
    ],
)
def test_the_events_tell_what_happened(text: str, events: list[Any]) -> None:
    told = reading_events(reading_of(text), schema_name="Book", parse_ms=2.0, check_ms=3.0)
    assert told == events


def test_a_text_beyond_mending_is_shown_in_part() -> None:
    start, begun, gone, error = reading_events(reading_of("no\0" * 200))
    assert start == ParseStart(600)
    assert begun == AutoCorrectStart(1)
    assert gone == AutoCorrectEnd(0.0, False, False, 0, [])
    assert isinstance(error, ParseError)
    assert error.content_preview == ("no\ufffd" * 200)[:200]


def test_a_parsed_but_unchecked_answer_has_no_validation_events() -> None:
    assert reading_events(parse_output(JSON, contract(), finish_reason="stop"), parse_ms=2.0) == PARSED


texts = st.text(alphabet='{}[]",:\\ \n`ajson1\u00a0', max_size=60)


@given(texts, st.sampled_from(["stop", "length", None]))
def test_any_text_is_read_or_refused(text: str, finish_reason: str | None) -> None:
    reading = reading_of(text, {"type": ["object", "array"]}, finish_reason)
    assert reading.ok == (reading.failure is None)
    assert reading.ok == isinstance(reading.value, dict | list)
    assert reading_events(reading)


@given(texts)
def test_valid_json_is_taken_as_it_stands(text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        return
    if isinstance(value, dict | list):
        reading = reading_of(text, {"type": ["object", "array"]})
        if reading.ok:  # A key that stands twice is refused.
            assert reading.value == value
            assert not reading.corrections


@given(
    st.recursive(st.integers() | texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)),
    st.data(),
)
def test_no_beginning_of_a_value_is_taken_for_the_value(value: Any, data: st.DataObject) -> None:
    text = json.dumps({"root": value})
    cut = text[: data.draw(st.integers(min_value=0, max_value=len(text) - 1))]
    for finish_reason in ("stop", "length", None):
        assert not reading_of(cut, {"type": ["object", "array"]}, finish_reason).ok


@given(
    texts.filter(lambda text: not set(text) & set('{}[]`"')),
    texts.filter(lambda t: not set(t) & set('{}[]`"')),
)
def test_prose_around_a_value_does_not_matter(before: str, after: str) -> None:
    assert reading_of(f"{before}{JSON}{after}").value == GOOD


@pytest.mark.parametrize(
    "piece",
    [
        "{",
        "[,",
        '{"a":"',
        '"\\',
        '{"\\"',
        "```\n",
        "```json\n{",
        '{"a":1,}\n',
        "\n ```",
        "`",
        "[]",
        "\u00a0{",
        ",\n]",
    ],
)
def test_reading_takes_linear_time(piece: str) -> None:
    def seconds(length: int) -> float:
        text = piece * (length // len(piece))
        took = []
        for _ in range(5):
            began = time.thread_time()
            extract(text)
            took.append(time.thread_time() - began)
        return min(took)

    # Ten times the text may take forty times as long, never a hundred times; the constant covers the clock.
    assert seconds(200_000) < 40 * seconds(20_000) + 0.05


CASES = [
    case
    for case in map(json.loads, (DATA / "cases.jsonl").read_text().strip().split("\n"))
    if case["kind"] == "3-json-output"
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_known_slips_of_models(case: dict[str, Any]) -> None:
    given_, expected = case["input"], case["expected"]
    reading = reading_of(given_["model_text"], given_["response_format"]["schema"], given_["finish_reason"])
    match expected["outcome"]:
        case "completed":
            assert reading.value == expected["value"]
            assert bool(reading.corrections) or not expected.get("auto_corrected")
        case "failed_or_retried":
            assert reading.failure is not None
            assert reading.failure.code in expected["error_code"].split("|")
        case _:
            assert reading.failure is not None, "where both are allowed, nothing is guessed"
