"""One model stream from its first attempt to its end: inputs in, effects out.

The handlers stand in `opening`, `reading`, `inspection`, `resuming`, `failing` and `closing`; each is the
contract's numbered list, in order. One that needs something decided outside yields `Ask` and stands still.
What may follow from a fault is data (`faults`), what does follow is decided in `verdict`, and every change of
state goes through the table (`table`).
"""

from __future__ import annotations

from typing import Any

from app.core.chunks import Chunk, TextDelta
from app.core.events.session import Token
from app.core.lifecycle import faults
from app.core.lifecycle.closing import OVER, abort, ended_by
from app.core.lifecycle.effects import Ask, Effect, Finish, Steps
from app.core.lifecycle.failing import fail
from app.core.lifecycle.faults import Failure, failure_of
from app.core.lifecycle.inputs import (
    Abort,
    Answer,
    Begin,
    Closed,
    Failed,
    Held,
    Input,
    Opened,
    TakeOver,
    Tick,
)
from app.core.lifecycle.limits import Limit
from app.core.lifecycle.opening import ask, retry, start
from app.core.lifecycle.reading import answer_begins, conclude, look, read, silence
from app.core.lifecycle.replay import Replay
from app.core.lifecycle.standing import UNDER_WAY, Standing
from app.core.lifecycle.table import TERMINAL, State
from app.core.lifecycle.takeover import recall, take_over


class UnexpectedInput(Exception):
    """A bug in the driver: an input that cannot come now. The machine is unchanged."""


class StreamMachine(Standing):
    """Feed it what happens, in order, and do what it asks, in order.

    Whatever still arrives of an attempt after its `Close`, or after it has ended, is ignored, so a driver may
    feed the rest of what it has read. A limit strikes only by a `Tick`: a chunk that was read counts, however
    late it was read.
    """

    __slots__ = ("_asking",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See `Standing`."""
        super().__init__(*args, **kwargs)
        self._asking: Steps[Any] | None = None
        """The handler that waits for an `Answer`."""

    def feed(self, item: Input, now_ms: float) -> list[Effect]:
        """Take one input and give what is to be done, in order.

        After an `Ask` only its `Answer`, an `Abort`, a `Held` and a `Tick` are taken. `now_ms` never goes
        back; count it from the epoch, since SESSION_SUMMARY shows it. Raises `UnexpectedInput` for a bug in
        the driver and `IllegalTransition` for one of our own.
        """
        if self.steady and type(item) is TextDelta and item.text:
            self.limits.progress_ms = now_ms
            texts = self.draft.texts
            texts.append(item.text)
            if len(texts) < self.look_at:
                return [Token(item.text)]
            self.now_ms = now_ms
            return [Token(item.text), *self._run(look(self))]
        self._check(item)
        self.now_ms = now_ms
        if isinstance(item, Answer):
            self.limits.go_on(now_ms)
            steps, self._asking = self._asking, None
            assert steps is not None
            return self._run(steps, item)
        return self._run(self._react(item))

    def recall(self, past: Replay) -> Finish:
        """Stand at the end of a session that is over, as its log tells of it; only in place of `Begin`."""
        return recall(self, past)

    @property
    def asking(self) -> bool:
        """Whether an `Answer` is waited for."""
        return self._asking is not None

    def _check(self, item: Input) -> None:
        expected = isinstance(item, Answer) == self.asking or (
            self.asking and isinstance(item, Abort | Tick | Held)
        )
        at_first = self.state is State.INIT and not self.asking
        if not expected or isinstance(item, Begin | TakeOver) is not at_first:
            raise UnexpectedInput(f"{type(item).__name__} in state {self.state}")

    def _run(self, steps: Steps[Any], answer: Answer | None = None) -> list[Effect]:
        """Go on with a handler until it has to ask, or ends."""
        effects: list[Effect] = []
        try:
            effect = next(steps) if answer is None else steps.send(answer)
            while not isinstance(effect, Ask):
                effects.append(effect)
                effect = next(steps)
        except StopIteration:
            return effects
        effects.append(effect)
        self._asking = steps
        self.steady = False
        self.limits.halt(self.now_ms)
        return effects

    def _react(self, item: Input) -> Steps[Any]:
        match item:
            case Begin():
                return self._begin()
            case TakeOver(past=past, number=number, stop=stop):
                return take_over(self, past, number, stop)
            case Tick():
                return self._tick()
            case Held(ms=ms):
                self.limits.hold(ms, self.now_ms)
                return _nothing()
            case Abort(source=source):
                if self.state in TERMINAL:
                    return _nothing()
                return self._abort(source, ended_by(source))
            case Answer():
                raise AssertionError("taken by feed")
        return self._hear(item) if self.state in UNDER_WAY else _nothing()

    def _begin(self) -> Steps[None]:
        yield from start(self)
        if self.budget.left < 1:
            yield from fail(self, Failure(faults.NO_CALLS_LEFT, "no model call is left to the run"))
        else:
            self.budget.take()
            yield from ask(self)

    def _tick(self) -> Steps[Any]:
        match self.limits.struck(self.now_ms):
            case None:
                return _nothing()
            case Limit.TOTAL:
                return self._abort("timeout", Failure(faults.DEADLINE, OVER))
            case Limit.PAUSE:
                return retry(self)
            case Limit.INITIAL | Limit.INTER as limit:
                return silence(self, limit.value)

    def _abort(self, source: str, failure: Failure) -> Steps[None]:
        """Whatever is being asked is not wanted any more."""
        if self._asking is not None:
            self._asking.close()
            self._asking = None
        return abort(self, source, failure)

    def _hear(self, item: Opened | Closed | Failed | Chunk) -> Steps[Any]:
        """Something of the attempt that is under way; before `Opened` only its failing counts."""
        match item:
            case Failed(fault=fault):
                return fail(self, failure_of(fault, opened=self.opened))
            case Opened(adapter_id=adapter_id):
                if self.opened:
                    raise UnexpectedInput("the stream is open already")
                return answer_begins(self, adapter_id)
        if not self.opened:
            return _nothing()
        return conclude(self) if isinstance(item, Closed) else read(self, item)


def _nothing() -> Steps[None]:
    yield from ()
