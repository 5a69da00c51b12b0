"""From a model's text to a value that keeps the contract, or to the reason why there is none.

What can be mended without guessing is mended, and named. A missing end is never added: an answer that was cut
off has no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from app.core.events.base import Event
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
from app.core.json_schema import SchemaError
from app.core.json_text import NotJson, canonical, read_mended, storable
from app.core.operate.extract import MAX_VALUES, Extraction, Found, extract, replaced, trimmed
from app.core.operate.schema import AnswerContract

EMPTY_OUTPUT: Final = "EMPTY_OUTPUT"
OUTPUT_TRUNCATED: Final = "OUTPUT_TRUNCATED"
PARSE: Final = "PARSE"
SCHEMA_VALIDATION: Final = "SCHEMA_VALIDATION"

CORRECTIONS: Final[Mapping[str, str]] = {
    "blanks": "a byte-order mark, or another invisible character, around or inside of the value",
    "fence": "the value stood in a code fence",
    "prose": "words stood around the value",
    "trailing_comma": "a comma stood before a closing bracket",
    "quotes": "strings stood in single or typographic quotes",
    "python_words": "True, False or None stood for true, false or null",
    "repeated": "the same value stood there more than once",
    "unstorable_characters": "a NUL or half of a surrogate pair became U+FFFD",
    "made_up_responses": "`action_responses`, which only the service writes, was left out",
    "repaired": "another model wrote the value anew",
}
"""What may be done to an answer that is no JSON as it stands, each with what it means."""
MADE_UP: Final = "made_up_responses"
REPAIRED: Final = "repaired"

_PREVIEW: Final = 200
"""Code points of the text that an error shows."""
_CUT_OFF: Final = frozenset({"length", None})
"""Finish reasons after which the text may have no end."""


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """Why a text gave no value."""

    code: str
    """EMPTY_OUTPUT, OUTPUT_TRUNCATED, PARSE or SCHEMA_VALIDATION."""
    message: str
    errors: tuple[SchemaError, ...] = ()
    """What does not fit the schema; only with SCHEMA_VALIDATION."""

    @property
    def kind(self) -> str:
        """What the run's `validation.kind` says: `extraction` or `schema`."""
        return "schema" if self.code == SCHEMA_VALIDATION else "extraction"


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of reading one answer."""

    text: str
    value: Any = None
    """The value that was read, also when it does not fit the schema; None when there is none."""
    failure: ReadFailure | None = None
    parsed: bool = False
    """Whether a JSON value was found."""
    corrections: tuple[str, ...] = ()
    """What was mended, in order; each is one of `CORRECTIONS`."""
    strict_error: str | None = None
    """Why the text is not JSON as it stands; None when it is."""
    checked: bool = False
    """Whether the value was held against the contract."""

    @property
    def ok(self) -> bool:
        """Whether the value may be used."""
        return self.failure is None


def read_output(
    text: str, contract: AnswerContract, *, finish_reason: str | None, validate: bool = True
) -> Reading:
    """Parse and check in one go."""
    reading = parse_output(text, contract, finish_reason=finish_reason)
    return check_output(reading, contract) if validate else reading


def parse_output(text: str, contract: AnswerContract, *, finish_reason: str | None) -> Reading:
    """Find the value in the text.

    The contract only decides between several values. After `length`, and when no finish reason is known, a
    value counts only if it is all there is, and closed by its own bracket.
    """
    bare = trimmed(text)
    if not bare:
        return Reading(text, failure=_nothing(finish_reason))
    try:
        mended = read_mended(bare)
    except NotJson as error:
        return _corrected(text, bare, str(error), contract, finish_reason)
    corrections = (*(["blanks"] if bare != text.strip(" \t\r\n") else []), *replaced(mended.replaced))
    reading = Reading(
        text,
        mended.value,
        parsed=True,
        corrections=corrections,
        strict_error="blanks or characters that are no JSON" if corrections else None,
    )
    return _judged(_without_made_up(reading, contract), contract, finish_reason)


def check_output(reading: Reading, contract: AnswerContract) -> Reading:
    """Hold the value against the contract; a reading without a value stays as it is."""
    if not reading.parsed or not reading.ok:
        return reading
    faults = contract.check(reading.value)
    if not faults:
        return replace(reading, checked=True)
    message = "; ".join(f"{fault.pointer or '(answer)'}: {fault.message}" for fault in faults)
    failure = ReadFailure(SCHEMA_VALIDATION, message, tuple(faults))
    return replace(reading, failure=failure, checked=True)


def reading_events(
    reading: Reading, *, schema_name: str | None = None, parse_ms: float = 0.0, check_ms: float = 0.0
) -> list[Event]:
    """The events of a reading, in order; the durations are the caller's."""
    events: list[Event] = [ParseStart(len(reading.text))]
    fixed = reading.parsed
    made = list(reading.corrections) if fixed else []
    if reading.strict_error is not None or made:
        events += [AutoCorrectStart(1), AutoCorrectEnd(parse_ms, fixed, fixed, len(made), made)]
    failure = reading.failure
    if failure is not None and failure.code != SCHEMA_VALIDATION:
        preview = storable(reading.text[:_PREVIEW]) or None
        return [*events, ParseError(f"{failure.code}: {failure.message}", preview)]
    events.append(ParseEnd(parse_ms, True))
    if reading.checked:
        events.append(SchemaValidationStart(schema_name))
        if failure is None:
            events.append(SchemaValidationEnd(check_ms, True))
        else:
            told = [f"{fault.pointer}: {fault.message}" for fault in failure.errors]
            events.append(SchemaValidationError(told[0], told))
    return events


def _corrected(
    text: str, bare: str, strict_error: str, contract: AnswerContract, finish_reason: str | None
) -> Reading:
    extraction = extract(bare)
    reading = Reading(text, strict_error=strict_error)
    if extraction.unfinished or (finish_reason in _CUT_OFF and not _is_all(bare, extraction)):
        return replace(reading, failure=_unfinished(strict_error, finish_reason))
    if not extraction.found:
        if not trimmed(bare.replace("`", "").removeprefix("json")):
            return replace(reading, failure=_nothing(finish_reason))
        return replace(reading, failure=ReadFailure(PARSE, f"there is no JSON value: {strict_error}"))
    chosen = _only_one(extraction.found, contract)
    if chosen is None:
        message = "there are several different JSON values, and no telling which one is meant"
        return replace(reading, failure=ReadFailure(PARSE, message))
    found = replace(reading, value=chosen.value, parsed=True, corrections=chosen.corrections)
    return _judged(_without_made_up(found, contract), contract, finish_reason)


def _without_made_up(reading: Reading, contract: AnswerContract) -> Reading:
    value = contract.without_made_up(reading.value)
    if value is reading.value:
        return reading
    return replace(reading, value=value, corrections=(*reading.corrections, MADE_UP))


def _is_all(bare: str, extraction: Extraction) -> bool:
    """Whether one closed value, at most with a fence around it, is all that was said."""
    found = extraction.found
    return len(found) == 1 and "prose" not in found[0].corrections and bare[-1] in "}]`"


def _only_one(found: Sequence[Found], contract: AnswerContract) -> Found | None:
    """The one value of the text; of several different ones the only one that keeps the contract."""
    if len(found) > MAX_VALUES:
        return None
    by_text: dict[bytes, Found] = {}
    for candidate in found:
        by_text.setdefault(canonical(candidate.value), candidate)
    if len(by_text) == 1:
        first = found[0]
        repeated = ("repeated",) if len(found) > 1 else ()
        return replace(first, corrections=(*first.corrections, *repeated))
    fitting = [f for f in by_text.values() if not contract.check(contract.without_made_up(f.value))]
    return fitting[0] if len(fitting) == 1 else None


def _judged(reading: Reading, contract: AnswerContract, finish_reason: str | None) -> Reading:
    """Refuse what was read but is nothing, or may lack its end."""
    if reading.value is None and contract.check(None):
        return replace(reading, failure=_nothing(finish_reason), parsed=False)
    if finish_reason in _CUT_OFF and not isinstance(reading.value, dict | list):
        return replace(reading, value=None, failure=_unfinished(None, finish_reason), parsed=False)
    return reading


def _nothing(finish_reason: str | None) -> ReadFailure:
    if finish_reason == "length":
        return _unfinished(None, finish_reason)
    return ReadFailure(EMPTY_OUTPUT, "the model gave no answer")


def _unfinished(strict_error: str | None, finish_reason: str | None) -> ReadFailure:
    why = f": {strict_error}" if strict_error else ""
    if finish_reason in _CUT_OFF:
        return ReadFailure(OUTPUT_TRUNCATED, f"the answer was cut off{why}")
    return ReadFailure(PARSE, f"the answer ends inside a JSON value{why}")
