"""From the answer's text to a value that fits the caller's schema (220–239)."""

from __future__ import annotations

from collections.abc import Mapping

from app.core.events.base import Event, event

ALIASES: Mapping[str, str] = {
    "PARSE_START": "STRUCTURED_PARSE_START",
    "PARSE_END": "STRUCTURED_PARSE_END",
    "PARSE_ERROR": "STRUCTURED_PARSE_ERROR",
    "SCHEMA_VALIDATION_START": "STRUCTURED_VALIDATION_START",
    "SCHEMA_VALIDATION_END": "STRUCTURED_VALIDATION_END",
    "SCHEMA_VALIDATION_ERROR": "STRUCTURED_VALIDATION_ERROR",
    "AUTO_CORRECT_START": "STRUCTURED_AUTO_CORRECT_START",
    "AUTO_CORRECT_END": "STRUCTURED_AUTO_CORRECT_END",
}
"""Second names of these types, for who asks for them: one fact stays one event."""


@event("PARSE_START", 220)
class ParseStart(Event):
    """The answer is about to be read as JSON."""

    content_length: int
    """In code points."""


@event("PARSE_END", 221)
class ParseEnd(Event):
    """It was JSON, perhaps after corrections."""

    duration_ms: float
    success: bool
    """Always true."""


@event("PARSE_ERROR", 222)
class ParseError(Event):
    """It was not."""

    error: str
    content_preview: str | None = None
    """Where reading stopped."""


@event("SCHEMA_VALIDATION_START", 223)
class SchemaValidationStart(Event):
    """The value is about to be checked against the schema."""

    schema_name: str | None = None


@event("SCHEMA_VALIDATION_END", 224)
class SchemaValidationEnd(Event):
    """The value fits."""

    duration_ms: float
    valid: bool
    """Always true."""


@event("SCHEMA_VALIDATION_ERROR", 225)
class SchemaValidationError(Event):
    """The value does not fit."""

    error: str
    """The first fault."""
    errors: list[str]
    """All of them, each with its JSON Pointer."""


@event("AUTO_CORRECT_START", 226)
class AutoCorrectStart(Event):
    """The text is not JSON as it stands; corrections are tried."""

    error_count: int


@event("AUTO_CORRECT_END", 227)
class AutoCorrectEnd(Event):
    """The corrections are done."""

    duration_ms: float
    fixed: bool
    success: bool
    """The same as `fixed`."""
    corrections_made: int
    corrections: list[str]
    """What was corrected, in order."""
