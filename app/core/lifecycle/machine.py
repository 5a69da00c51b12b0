"""One model stream from its first attempt to its end: inputs in, effects out.

The handlers stand in `opening`, `reading`, `failing` and `closing`; each is the contract's numbered list, in
order. What may follow from a fault is data (`faults`), what does follow is decided in `verdict`, and every
change of state goes through the table (`table`).
"""

from __future__ import annotations

from collections.abc import Iterator

from app.core.chunks import Chunk, TextDelta
from app.core.events.session import Token
from app.core.lifecycle import faults
from app.core.lifecycle.closing import abort
from app.core.lifecycle.effects import Effect
from app.core.lifecycle.failing import fail
from app.core.lifecycle.faults import Failure, failure_of
from app.core.lifecycle.inputs import Abort, Answer, Begin, Closed, Failed, Held, Input, Opened, Tick
from app.core.lifecycle.limits import Limit
from app.core.lifecycle.opening import ask, retry, start
from app.core.lifecycle.reading import answer_begins, conclude, read, silence
from app.core.lifecycle.standing import UNDER_WAY, Standing
from app.core.lifecycle.table import TERMINAL, State


class UnexpectedInput(Exception):
    """A bug in the driver: an input that cannot come now. The machine is unchanged."""


class StreamMachine(Standing):
    """Feed it what happens, in order, and do what it asks, in order.

    Whatever still arrives of an attempt after its `Close`, or after it has ended, is ignored, so a driver may
    feed the rest of what it has read. A limit strikes only by a `Tick`: a chunk that was read counts, however
    late it was read.
    """

    __slots__ = ()

    def feed(self, item: Input, now_ms: float) -> list[Effect]:
        """Take one input and give what is to be done, in order.

        `now_ms` never goes back; count it from the epoch, since SESSION_SUMMARY shows it. Raises
        `UnexpectedInput` for a bug in the driver and `IllegalTransition` for one of our own.
        """
        if self.steady and type(item) is TextDelta and item.text:
            self.limits.progress_ms = now_ms
            self.draft.texts.append(item.text)
            return [Token(item.text)]
        return list(self._react(item, now_ms))

    def _react(self, item: Input, now_ms: float) -> Iterator[Effect]:
        if isinstance(item, Answer) or isinstance(item, Begin) is not (self.state is State.INIT):
            raise UnexpectedInput(f"{type(item).__name__} in state {self.state}")
        match item:
            case Begin():
                return self._begin(now_ms)
            case Tick():
                return self._tick(now_ms)
            case Held(ms=ms):
                self.limits.hold(ms, now_ms)
                return iter(())
            case Abort(source=source):
                if self.state in TERMINAL:
                    return iter(())
                return abort(self, source, Failure(faults.ABORTED, f"ended by {source}"), now_ms)
        return self._hear(item, now_ms) if self.state in UNDER_WAY else iter(())

    def _begin(self, now_ms: float) -> Iterator[Effect]:
        yield from start(self, now_ms)
        if self.calls_left < 1:
            failure = Failure(faults.NO_CALLS_LEFT, "no model call is left to the run")
            yield from fail(self, failure, now_ms)
        else:
            yield from ask(self, now_ms)

    def _tick(self, now_ms: float) -> Iterator[Effect]:
        match self.limits.struck(now_ms):
            case None:
                return iter(())
            case Limit.TOTAL:
                failure = Failure(faults.DEADLINE, "the time for the run is over")
                return abort(self, "timeout", failure, now_ms)
            case Limit.PAUSE:
                return retry(self, now_ms)
            case Limit.INITIAL | Limit.INTER as limit:
                return silence(self, limit.value, now_ms)

    def _hear(self, item: Opened | Closed | Failed | Chunk, now_ms: float) -> Iterator[Effect]:
        """Something of the attempt that is under way; before `Opened` only its failing counts."""
        match item:
            case Failed(fault=fault):
                return fail(self, failure_of(fault, opened=self.opened), now_ms)
            case Opened(adapter_id=adapter_id):
                if self.opened:
                    raise UnexpectedInput("the stream is open already")
                return answer_begins(self, adapter_id, now_ms)
        if not self.opened:
            return iter(())
        return conclude(self, now_ms) if isinstance(item, Closed) else read(self, item, now_ms)
