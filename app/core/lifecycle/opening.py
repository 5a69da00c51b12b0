"""Handlers that ask a model: at first, again, or the next one."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.events.base import Callback
from app.core.events.fallback import FallbackModelSelected, FallbackStart
from app.core.events.session import AttemptStart, SessionStart, StreamInit
from app.core.lifecycle.closing import leave_fallback
from app.core.lifecycle.draft import Draft
from app.core.lifecycle.effects import Effect, Open, Position
from app.core.lifecycle.faults import Failure
from app.core.lifecycle.standing import Standing
from app.core.lifecycle.table import State
from app.core.lifecycle.verdict import Spent


def start(session: Standing, now_ms: float) -> Iterator[Effect]:
    """Open the session; nothing is asked yet."""
    session.tally.began_ms = now_ms
    session.limits.begin(now_ms)
    yield Position(session.attempt, session.fallback_index)
    event = SessionStart(session.attempt, is_retry=False, is_fallback=False, purpose=session.purpose)
    yield event.then(session.on_start(is_retry=False))


def ask(session: Standing, now_ms: float) -> Iterator[Effect]:
    """Ask the present model; all earlier text is void."""
    session.enter(State.WAITING_FOR_TOKEN)
    session.draft = Draft()
    session.opened = False
    session.first_token = True
    session.openings += 1
    session.calls_left -= 1
    session.limits.ask(now_ms)
    yield StreamInit()
    yield Open(session.fallback_index, session.attempt, session.openings)


def retry(session: Standing, now_ms: float) -> Iterator[Effect]:
    """The pause is over: ask the same model again."""
    session.attempt += 1
    yield Position(session.attempt, session.fallback_index)
    is_fallback = session.fallback_index > 0
    event = AttemptStart(session.attempt, is_retry=True, is_fallback=is_fallback, content_offset=0)
    yield event.then(session.on_start(is_retry=True))
    yield from ask(session, now_ms)


def fall_back(session: Standing, failure: Failure, now_ms: float) -> Iterator[Effect]:
    """Leave the present model for good and ask the next."""
    session.enter(State.FALLBACK)
    yield from leave_fallback(session, success=False)
    session.tally.causes.append(failure.error)
    left = session.fallback_index
    session.fallback_index += 1
    session.attempt = 1
    session.spent = Spent()
    session.last_pause_ms = 0.0
    reason = "previous_failed"
    yield Position(session.attempt, session.fallback_index)
    yield FallbackStart(left, session.fallback_index, reason, content_offset=0)
    # To on_fallback the first fallback is number 0.
    on_fallback = Callback("on_fallback", (left, reason))
    selected = FallbackModelSelected(session.fallback_index, reason)
    yield selected.then(on_fallback, session.on_start(is_retry=False))
    yield from ask(session, now_ms)
