"""Handlers for checkpoints: save one, decide how much of it stays, and say what an attempt goes on from."""

from __future__ import annotations

from itertools import accumulate

from app.core.events.base import Callback, TextRef
from app.core.events.continuation import CheckpointSaved, ContinuationStart, ResumeStart
from app.core.lifecycle.effects import Steps
from app.core.lifecycle.faults import Failure
from app.core.lifecycle.inspection import Inspection, Moment, judge
from app.core.lifecycle.seam import Seam
from app.core.lifecycle.standing import Standing


def save(session: Standing) -> Steps[None]:
    """Save a checkpoint of the text so far."""
    session.saved_at = count = session.token_count
    session.tally.checkpoints += 1
    text = TextRef(session.length)
    yield CheckpointSaved(text, count).then(Callback("on_checkpoint", (text, count)))


def resume_at(session: Standing, failure: Failure) -> int:
    """How many tokens of a failed attempt the next may go on from.

    A fault of the content leaves the last checkpoint that was saved before it; any other, all there is. A
    half-written tool call leaves nothing: the next attempt would answer to half of a call.
    """
    of_the_content = failure.trouble.category == "content"
    if session.draft.tool_parts or (of_the_content and session.seam is not None):
        return 0  # in the latter case the answer did not go on from the checkpoint, so it is of no use
    return tokens_before(session, failure.trouble.category, failure.position)


def tokens_before(session: Standing, category: str, position: int | None) -> int:
    """How many tokens of the text a fault of a category, and at a place in it, leaves."""
    options, draft = session.options.continuation, session.draft
    if options is None:
        return 0
    if category != "content":
        return len(draft.texts)
    lengths = [0, *accumulate(map(len, draft.texts))]
    good = lengths[-1] - 1
    if position is not None:
        good = min(good, position)
    at = session.saved_at
    while at > 0 and lengths[at] > good:
        at -= options.checkpoint_every
    return max(at, 0)


def keep(session: Standing) -> Steps[int]:
    """Decide how many tokens stay: the streaming rules judge the checkpoint first."""
    at = 0 if session.prefix_refused else session.resume_at
    texts = session.draft.texts[:at]
    inspection = Inspection(session.options)
    if texts:
        rejected = yield from judge(session, inspection, texts, Moment("pre", final=False))
        if rejected is not None:
            at, inspection = 0, Inspection(session.options)
        elif inspection.monitor is not None:
            inspection.monitor.take(inspection.unnoted(texts))
    session.inspection = inspection
    session.saved_at = min(session.saved_at, at)
    session.draft.cut(at)
    return at


def announce(session: Standing, kept: int) -> Steps[None]:
    """Say that the attempt goes on from a checkpoint of so many tokens, if of any."""
    session.resumed, session.seam = False, None
    options = session.options.continuation
    if not kept or options is None:
        return
    checkpoint = session.text
    session.resumed = True
    session.seam = Seam(checkpoint, min_overlap=options.min_overlap, max_overlap=options.max_overlap)
    text = TextRef(len(checkpoint))
    yield ContinuationStart(len(checkpoint), text, kept)
    yield ResumeStart(text, kept).then(Callback("on_resume", (text, kept)))
