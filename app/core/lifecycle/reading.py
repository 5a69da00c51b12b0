"""Handlers for what a model server says: its answer's beginning, pieces, silence and end."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.chunks import (
    Chunk,
    EndMark,
    FinishReason,
    KeepAlive,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from app.core.events.adapter import AdapterDetected, AdapterWrapEnd, AdapterWrapStart
from app.core.events.base import Callback
from app.core.events.session import FinalizationEnd, FinalizationStart, StreamReady, Token
from app.core.events.timeout import TimeoutReset, TimeoutStart, TimeoutTriggered
from app.core.events.tool import ToolRequested
from app.core.lifecycle import faults
from app.core.lifecycle.closing import complete
from app.core.lifecycle.effects import Close, Effect
from app.core.lifecycle.failing import fail
from app.core.lifecycle.faults import Failure
from app.core.lifecycle.standing import Standing
from app.core.lifecycle.table import State


def answer_begins(session: Standing, adapter_id: str, now_ms: float) -> Iterator[Effect]:
    """The model server accepted the request."""
    session.opened = True
    yield AdapterWrapStart("async_iterator", adapter_id)
    yield AdapterDetected(adapter_id)
    yield StreamReady()
    yield from session.outage.answered(now_ms)
    yield AdapterWrapEnd(adapter_id)
    yield from _initial_limit(session)


def read(session: Standing, chunk: Chunk, now_ms: float) -> Iterator[Effect]:
    """One piece of the answer, or a sign of life."""
    match chunk:
        case TextDelta(text=text) if text:
            yield from _token(session, text, now_ms)
        case ReasoningDelta(text=text) if text:
            _come_forward(session, now_ms)
            session.draft.reasonings.append(text)
        case ToolCallDelta():
            _come_forward(session, now_ms, State.TOOL_CALL_DETECTED)
            session.draft.tool_parts.add(chunk)
        case RefusalDelta(text=text) if text:
            _come_forward(session, now_ms)
            session.draft.refusals.append(text)
        case EndMark():
            yield Close()
            yield from conclude(session, now_ms, end_mark=True)
        case UsageReport():
            session.limits.alive(now_ms)
            session.tally.report(session.fallback_index, session.attempt, chunk)
        case FinishReason():
            session.limits.alive(now_ms)
            session.draft.finish(chunk)
        case TextDelta() | ReasoningDelta() | RefusalDelta() | KeepAlive():
            session.limits.alive(now_ms)


def silence(session: Standing, kind: str, now_ms: float) -> Iterator[Effect]:
    """A time limit struck: `kind` is `initial` or `inter`."""
    yield Close()
    if session.finish_reason_raw is not None:
        # The model has said that it is done; only the server has not hung up.
        yield from conclude(session, now_ms)
        return
    timeout = session.options.timeout
    limit_ms, trouble = timeout.inter_ms or 0, faults.INTER_TIMEOUT
    if kind == "initial":
        limit_ms, trouble = timeout.initial_ms or 0, faults.INITIAL_TIMEOUT
        if not session.opened:
            yield from _initial_limit(session)
    event = TimeoutTriggered(kind, elapsed_ms=limit_ms, configured_ms=limit_ms)
    yield event.then(Callback("on_timeout", (kind, limit_ms / 1000)))
    message = f"nothing of the answer came for {limit_ms} ms, the limit timeout.{kind}_token_ms"
    yield from fail(session, Failure(trouble, message), now_ms)


def conclude(session: Standing, now_ms: float, *, end_mark: bool = False) -> Iterator[Effect]:
    """The answer ended without a fault; `end_mark` says whether the wire said that it is whole."""
    calls = session.draft.conclude(end_mark=end_mark, new_id=lambda: _call_id(session))
    if isinstance(calls, Failure):
        yield from fail(session, calls, now_ms)
        return
    for call in calls:
        event = ToolRequested(call.name, call.id, call.arguments)
        yield event.then(Callback("on_tool_call", (call.name, call.id, call.arguments)))
    session.enter(State.FINALIZING)
    yield FinalizationStart()
    yield FinalizationEnd()
    if session.options.detect_zero_tokens and not calls and session.draft.is_empty():
        yield from fail(session, Failure(faults.ZERO_OUTPUT, "the answer is empty"), now_ms)
        return
    session.tool_calls = calls
    yield from complete(session, now_ms)


def _token(session: Standing, text: str, now_ms: float) -> Iterator[Effect]:
    _come_forward(session, now_ms, State.STREAMING)
    session.draft.texts.append(text)
    yield Token(text)
    inter_ms = session.options.timeout.inter_ms
    says_resets = inter_ms is not None and session.options.events == "full"
    if inter_ms is not None and (session.first_token or says_resets):
        yield TimeoutReset("inter", inter_ms, token_index=session.token_count - 1)
    if session.first_token:
        session.first_token = False
        yield from session.outage.token(now_ms)
    session.steady = not says_resets


def _come_forward(session: Standing, now_ms: float, state: State | None = None) -> None:
    """The answer made progress; `state` is what the piece stands for, None where it only ends the waiting."""
    session.limits.progress_ms = now_ms
    if state is None and session.state is State.WAITING_FOR_TOKEN:
        state = State.STREAMING
    if state is not None and state is not session.state:
        session.enter(state)


def _initial_limit(session: Standing) -> Iterator[Effect]:
    if session.options.timeout.initial_ms is not None:
        yield TimeoutStart("initial", session.options.timeout.initial_ms)


def _call_id(session: Standing) -> str:
    """An id that no other call has, in this stream or another: 52 random bits."""
    return f"call_{int(session.draw() * 2**52):013x}"
