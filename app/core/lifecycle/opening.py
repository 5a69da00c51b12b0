"""Handlers that ask a model: at first, again, or the next one."""

from __future__ import annotations

from app.core.events.base import Callback
from app.core.events.fallback import FallbackModelSelected, FallbackStart
from app.core.events.session import AttemptStart, SessionStart, StreamInit, TurnPaused
from app.core.lifecycle.closing import end_attempt, leave_fallback
from app.core.lifecycle.draft import Draft
from app.core.lifecycle.effects import Open, Position, Steps
from app.core.lifecycle.faults import Failure
from app.core.lifecycle.resuming import announce, keep
from app.core.lifecycle.standing import Standing
from app.core.lifecycle.table import State
from app.core.lifecycle.verdict import Spent
from app.core.opaque import PausedTurn


def start(session: Standing) -> Steps[None]:
    """Open the session; nothing is asked yet."""
    session.tally.began_ms = session.now_ms
    session.limits.begin(session.now_ms)
    yield Position(session.attempt, session.fallback_index)
    event = SessionStart(
        session.attempt,
        is_retry=False,
        is_fallback=False,
        purpose=session.purpose,
        index=session.index,
    )
    yield event.then(session.on_start(is_retry=False))


def ask(session: Standing) -> Steps[None]:
    """Ask the present model; earlier text is void but for the checkpoint that the attempt goes on from."""
    session.enter(State.WAITING_FOR_TOKEN)
    kept = session.draft.texts if session.resumed else []
    session.draft = Draft(kept)
    session.look_at = session.inspection.next_look(session.options, len(kept))
    yield from _open(session, continue_from=session.text)


def go_on(session: Standing) -> Steps[None]:
    """Give a provider that interrupted its answer what it has said: the same attempt goes on."""
    session.budget.take()
    session.enter(State.WAITING_FOR_TOKEN)
    yield from end_attempt(session, "paused")
    draft = session.draft
    yield TurnPaused(draft.finish_reason_raw or "", session.token_count)
    draft.go_on()
    yield from _open(session, paused=PausedTurn(draft.text, draft.opaque))


def _open(session: Standing, *, continue_from: str = "", paused: PausedTurn | None = None) -> Steps[None]:
    session.opened = False
    session.first_token = True
    session.openings += 1
    session.attempt_runs = True
    session.limits.ask(session.now_ms)
    yield StreamInit()
    yield Open(session.fallback_index, session.attempt, session.openings, continue_from, paused)


def retry(session: Standing) -> Steps[None]:
    """The pause is over: ask the same model again."""
    kept = yield from keep(session)
    session.attempt += 1
    yield Position(session.attempt, session.fallback_index)
    is_fallback = session.fallback_index > 0
    event = AttemptStart(
        session.attempt, is_retry=True, is_fallback=is_fallback, content_offset=session.length
    )
    yield event.then(session.on_start(is_retry=True))
    yield from announce(session, kept)
    yield from ask(session)


def fall_back(session: Standing, failure: Failure) -> Steps[None]:
    """Leave the present model for good and ask the next."""
    session.budget.take()
    session.enter(State.FALLBACK)
    yield from leave_fallback(session, success=False)
    # The next model has not refused anything yet.
    session.prefix_refused = False
    kept = yield from keep(session)
    session.tally.causes.append(failure.error)
    left = session.fallback_index
    session.fallback_index += 1
    session.attempt = 1
    session.spent = Spent()
    session.last_pause_ms = 0.0
    reason = "previous_failed"
    yield Position(session.attempt, session.fallback_index)
    session.in_fallback = True
    yield FallbackStart(left, session.fallback_index, reason, content_offset=session.length)
    # To on_fallback the first fallback is number 0.
    on_fallback = Callback("on_fallback", (left, reason))
    selected = FallbackModelSelected(session.fallback_index, reason)
    yield selected.then(on_fallback, session.on_start(is_retry=False))
    yield from announce(session, kept)
    yield from ask(session)
