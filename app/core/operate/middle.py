"""Decide by which middle a model is asked."""

from __future__ import annotations

from typing import Final, Literal

from app.core.errors import FieldError, Invalid

MiddleName = Literal["communicate", "run_and_collect"]
"""`communicate`: a request and one message. `run_and_collect`: all messages until the model is done."""

MIDDLE_NAMES: Final[tuple[MiddleName, ...]] = ("communicate", "run_and_collect")


def choose_middle(named: MiddleName | None, *, model: str, collects: bool) -> MiddleName:
    """The one that is named, else the one of the model's kind.

    `collects` says whether the model may take several messages for one answer. Raises `Invalid` where one is
    named that would lose some of them.
    """
    if named is None:
        return "run_and_collect" if collects else "communicate"
    if collects and named == "communicate":
        message = f"the model {model!r} works by itself and answers in several messages: leave it out"
        raise Invalid(f"`middle` does not fit: {message}", errors=[FieldError("/middle", message)])
    return named
