"""Handlers for what a model server says: its answer's beginning, pieces, silence and end."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.chunks import (
    Chunk,
    EndMark,
    FinishReason,
    KeepAlive,
    MessageBreak,
    OpaqueBlocks,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolOutcome,
    ToolUse,
    UsageReport,
)
from app.core.events.adapter import AdapterDetected, AdapterWrapEnd, AdapterWrapStart
from app.core.events.base import Callback, Event
from app.core.events.session import FinalizationEnd, FinalizationStart, StreamReady, Token
from app.core.events.timeout import TimeoutReset, TimeoutStart, TimeoutTriggered
from app.core.events.tool import ToolObserved, ToolOutcomeObserved, ToolRequested
from app.core.lifecycle import faults
from app.core.lifecycle.closing import complete
from app.core.lifecycle.effects import Close, Steps
from app.core.lifecycle.failing import fail
from app.core.lifecycle.faults import Failure
from app.core.lifecycle.inspection import Moment, judge, look_for_drift
from app.core.lifecycle.opening import go_on
from app.core.lifecycle.resuming import save
from app.core.lifecycle.seam import Settled
from app.core.lifecycle.standing import Standing
from app.core.lifecycle.table import State
from app.core.lifecycle.toolcalls import ToolCall


def answer_begins(session: Standing, adapter_id: str) -> Steps[None]:
    """The model server accepted the request."""
    session.opened = True
    yield AdapterWrapStart("async_iterator", adapter_id)
    yield AdapterDetected(adapter_id)
    yield StreamReady()
    yield from session.outage.answered(session.now_ms)
    yield AdapterWrapEnd(adapter_id)
    yield from _initial_limit(session)


def read(session: Standing, chunk: Chunk) -> Steps[None]:
    """One piece of the answer, or a sign of life."""
    match chunk:
        case TextDelta(text=text) if text:
            yield from _text(session, text)
        case ReasoningDelta(text=text) if text:
            _come_forward(session)
            session.draft.reasonings.append(text)
        case ToolCallDelta():
            if (yield from _join(session)):
                _come_forward(session, State.TOOL_CALL_DETECTED)
                session.draft.tool_parts.add(chunk)
        case RefusalDelta(text=text) if text:
            _come_forward(session)
            session.draft.refusals.append(text)
        case ToolUse() | ToolOutcome():
            _come_forward(session)
            yield _observed(chunk)
        case EndMark():
            yield Close()
            yield from conclude(session, end_mark=True)
        case UsageReport():
            session.limits.alive(session.now_ms)
            session.draft.report(chunk, held=session.seam is not None)
        case FinishReason():
            session.limits.alive(session.now_ms)
            session.draft.finish(chunk)
        case OpaqueBlocks(blocks=blocks):
            # Blocks are made of what was said before; the sign that one is being written stands for more.
            _come_forward(session, said=not blocks)
            session.draft.carry(blocks)
        case TextDelta() | ReasoningDelta() | RefusalDelta() | MessageBreak() | KeepAlive():
            session.limits.alive(session.now_ms)


def _observed(chunk: ToolUse | ToolOutcome) -> Event:
    if isinstance(chunk, ToolUse):
        return ToolObserved(chunk.id, chunk.name, chunk.arguments)
    return ToolOutcomeObserved(chunk.id, chunk.output, chunk.is_error)


def silence(session: Standing, kind: str) -> Steps[None]:
    """A time limit struck: `kind` is `initial` or `inter`."""
    yield Close()
    if session.finish_reason_raw is not None:
        # The model has said that it is done; only the server has not hung up.
        yield from conclude(session)
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
    yield from fail(session, Failure(trouble, message))


def conclude(session: Standing, *, end_mark: bool = False) -> Steps[None]:
    """The answer ended without a fault; `end_mark` says whether the wire said that it is whole."""
    if not (yield from _join(session)):
        return
    session.draft.is_over = end_mark
    if _may_go_on(session):
        yield from go_on(session)
        return
    calls = session.draft.conclude(end_mark=end_mark, new_id=lambda: _call_id(session))
    if isinstance(calls, Failure):
        yield from fail(session, calls)
        return
    for call in calls:
        event = ToolRequested(call.name, call.id, call.arguments, call.replaced or None)
        yield event.then(Callback("on_tool_call", (call.name, call.id, call.arguments)))
    session.enter(State.FINALIZING)
    yield FinalizationStart()
    failure = yield from _final_checks(session, calls)
    yield FinalizationEnd()
    if failure is not None:
        yield from fail(session, failure)
        return
    session.tool_calls = calls
    yield from complete(session)


def _may_go_on(session: Standing) -> bool:
    """Whether the provider interrupted itself, and can be given all that it has said.

    One that said nothing more would say nothing for ever; of what an earlier attempt said it knows nothing.
    """
    has_spoken = session.state is State.STREAMING
    return session.draft.may_go_on and has_spoken and not session.resumed and session.budget.left > 0


def _final_checks(session: Standing, calls: Sequence[ToolCall]) -> Steps[Failure | None]:
    """All of them; the gravest failure."""
    texts = session.draft.texts
    empty = not calls and session.draft.is_empty()
    drift = yield from look_for_drift(session, texts, final=True)
    # Tool calls alone are a whole answer, so there is no text that lacks anything.
    has_text = not calls or any(text.strip() for text in texts)
    rejected = (
        (yield from judge(session, session.inspection, texts, Moment("post", final=True)))
        if has_text
        else None
    )
    if rejected is not None and rejected.trouble is faults.FATAL_GUARDRAIL:
        return rejected
    if empty and session.options.detect_zero_tokens:
        return Failure(faults.ZERO_OUTPUT, "the answer is empty")
    return drift or rejected


def _text(session: Standing, text: str) -> Steps[bool]:
    """A piece of text; whether the attempt goes on."""
    _come_forward(session, State.STREAMING if session.seam is None else None)
    if session.seam is None:
        return (yield from _token(session, text))
    if session.state is not State.CONTINUATION_MATCHING:
        session.enter(State.CONTINUATION_MATCHING)
    settled = session.seam.take(text)
    return settled is None or (yield from _go_on(session, settled))


def _join(session: Standing) -> Steps[bool]:
    """Nothing more of the overlap can come; whether the attempt goes on."""
    if session.seam is None or session.state is not State.CONTINUATION_MATCHING:
        session.seam = None
        return True
    return (yield from _go_on(session, session.seam.end()))


def _go_on(session: Standing, settled: Settled) -> Steps[bool]:
    """The overlap is settled: what was held comes out."""
    session.enter(State.CHECKPOINT_VERIFYING)
    if settled.fault is not None:
        yield Close()
        yield from fail(session, Failure(faults.DRIFT, settled.fault))
        return False
    session.seam = None
    session.draft.repeated += settled.overlap
    session.enter(State.STREAMING)
    for piece in settled.pieces:
        if not (yield from _token(session, piece)):
            return False
    return True


def _token(session: Standing, text: str) -> Steps[bool]:
    session.draft.texts.append(text)
    yield Token(text)
    inter_ms = session.options.timeout.inter_ms
    says_resets = inter_ms is not None and session.options.events == "full"
    if inter_ms is not None and (session.first_token or says_resets):
        yield TimeoutReset("inter", inter_ms, token_index=session.token_count - 1)
    if session.first_token:
        session.first_token = False
        yield from session.outage.token(session.now_ms)
    if not (yield from look(session)):
        return False
    session.steady = not says_resets
    return True


def look(session: Standing) -> Steps[bool]:
    """What is due after a token: rules, detectors, a checkpoint; whether the attempt goes on."""
    count, options, texts = session.token_count, session.options, session.draft.texts
    if count < session.look_at:
        return True
    session.look_at = session.inspection.next_look(options, count)
    failure = None
    if count % options.guardrails_every == 0:
        failure = yield from judge(session, session.inspection, texts, Moment("post", final=False))
    if failure is None and options.drift is not None and count % options.drift_every == 0:
        failure = yield from look_for_drift(session, texts, final=False)
    if failure is not None:
        yield Close()
        yield from fail(session, failure)
        return False
    if options.continuation is not None and count % options.continuation.checkpoint_every == 0:
        yield from save(session)
    return True


def _come_forward(session: Standing, state: State | None = None, *, said: bool = True) -> None:
    """The answer made progress; `state` is what the piece stands for, None where it only ends the waiting.

    `said` tells whether the piece is something new, that no earlier report can have counted.
    """
    session.limits.progress_ms = session.now_ms
    session.draft.more |= said
    if state is None and session.state is State.WAITING_FOR_TOKEN:
        state = State.STREAMING
    if state is not None and state is not session.state:
        session.enter(state)


def _initial_limit(session: Standing) -> Steps[None]:
    if session.options.timeout.initial_ms is not None:
        yield TimeoutStart("initial", session.options.timeout.initial_ms)


def _call_id(session: Standing) -> str:
    """An id that no other call has, in this stream or another: 52 random bits."""
    return f"call_{int(session.draw() * 2**52):013x}"
