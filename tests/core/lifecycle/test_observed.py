"""Tools that a model uses by itself: told, counted as progress, and never taken for calls."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.chunks import Chunk, EndMark, FinishReason, TextDelta, ToolOutcome, ToolUse
from app.core.events.base import Event
from app.core.events.tool import ToolObserved, ToolOutcomeObserved, ToolRequested
from app.core.lifecycle.effects import Effect, Finish
from app.core.lifecycle.inputs import Begin, Opened, Tick
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import NO_RETRIES, LifecycleOptions, TimeoutOptions

OPTIONS = LifecycleOptions(
    timeout=TimeoutOptions(initial_ms=100, inter_ms=100, alive_ms=100), retry=NO_RETRIES
)
USE, OUTCOME = ToolUse("t", "ls", {"path": "/"}), ToolOutcome("t", ["a"], is_error=False)


def fed(*items: tuple[float, Chunk | Tick]) -> tuple[StreamMachine, list[Effect]]:
    """A machine that was fed each of these at its time, and what came of it."""
    machine = StreamMachine(OPTIONS, models=1, draw=lambda: 0.5)
    effects = [*machine.feed(Begin(), 0), *machine.feed(Opened("command"), 0)]
    for now_ms, item in items:
        effects += machine.feed(item, now_ms)
    return machine, effects


def finish(effects: Sequence[Effect]) -> Finish:
    (end,) = (effect for effect in effects if isinstance(effect, Finish))
    return end


def test_they_are_told_in_their_place_and_are_no_calls() -> None:
    said: list[Chunk] = [
        TextDelta("a"),
        USE,
        OUTCOME,
        TextDelta("b"),
        FinishReason("stop", "stop"),
        EndMark(),
    ]
    machine, effects = fed(*((1.0, chunk) for chunk in said))
    told = [effect.type for effect in effects if isinstance(effect, Event)]
    assert [kind for kind in told if kind == "TOKEN" or kind.startswith("TOOL_")] == [
        "TOKEN",
        "TOOL_OBSERVED",
        "TOOL_OUTCOME_OBSERVED",
        "TOKEN",
    ]
    assert ToolObserved("t", "ls", {"path": "/"}) in effects
    assert ToolOutcomeObserved("t", ["a"], is_error=False) in effects
    assert (machine.text, machine.tool_calls, finish(effects).error) == ("ab", [], None)
    assert not any(isinstance(effect, ToolRequested) for effect in effects)


def test_they_are_progress() -> None:
    """A model that works for long before it speaks has not fallen silent."""
    _, effects = fed(
        (90, USE), (180, OUTCOME), (270, USE), (360, OUTCOME), (450, TextDelta("a")), (460, EndMark())
    )
    assert finish(effects).error is None
    _, effects = fed((90, USE), (190, Tick()))
    error = finish(effects).error
    assert error is not None
    assert error.code == "INTER_TOKEN_TIMEOUT"


def test_they_alone_are_no_answer() -> None:
    _, effects = fed((1, USE), (2, OUTCOME), (3, EndMark()))
    error = finish(effects).error
    assert error is not None
    assert error.code == "ZERO_OUTPUT"
