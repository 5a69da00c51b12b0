"""Drive the lifecycle machine of one stream against a model server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import structlog

from app.core.chunks import Chunk
from app.core.events.base import Event
from app.core.events.session import Token
from app.core.events.timeout import TimeoutTriggered
from app.core.faults import Fault, FaultKind, ProviderError
from app.core.lifecycle.effects import Ask, AttemptEnded, Close, Effect, Finish, Open, Position
from app.core.lifecycle.inputs import Abort, Answer, Closed, Failed, Held, Input, Opened, Tick
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import RetryOptions
from app.ports.ambient import Clock
from app.ports.provider import HASTY, LATE
from app.ports.provider import Held as HeldStream
from app.services.account import Account
from app.services.execution import Execution

log = structlog.get_logger("stream")

CLOSING_S: Final = 2.0
"""How long the next step of a run waits for a model stream to close that was cut off."""

PATIENT_MS: Final = 5_000
"""How long a limit on an answer has to be at least to say something of a model that others use too."""

ModelStream = AbstractAsyncContextManager[AsyncIterator[Sequence[Chunk]]]
Control = Open | Close | Ask | Finish
Decide = Callable[[Ask, RetryOptions], Awaitable[Answer]]
"""Answers what a machine asks by the options of its stream; never raises."""


async def nobody(ask: Ask, options: RetryOptions) -> Answer:
    """Decides nothing."""
    return Answer(error=f"nobody decides {ask.kind}")


_BUGS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)


class NotTaken(Exception):
    """What a model said could not be fed to the machine or recorded: a bug of ours."""


class StreamDriver:
    """Performs what the machine asks for: events are recorded, model streams opened and closed, time kept."""

    def __init__(
        self,
        machine: StreamMachine,
        execution: Execution,
        index: int,
        open_model: Callable[[Open], tuple[str, ModelStream]],
        clock: Clock,
        on_complete: Callable[[], None] = lambda: None,
        decide: Decide = nobody,
        account: Account | None = None,
    ) -> None:
        """`index` is the stream's in its run; `open_model` gives an adapter id and a stream to enter.

        `on_complete` is called when the stream has its answer, before anything of its end can be committed:
        what it appends to the log is committed together with COMPLETE. `account` is told how each attempt
        ended; whoever opens models tells it what is asked.
        """
        self._machine = machine
        self._execution = execution
        self._log = execution.log
        self._index = index
        self._open_model = open_model
        self._clock = clock
        self._decide = decide
        self._on_complete = on_complete
        self._account = account
        self._attempt = 1
        self._fallback = 0
        self._held = False
        self._nearer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when a limit has come nearer than the one that is waited for."""
        self._awaited_ms: float | None = None
        """The limit that is waited for."""

    async def run(self, effects: Sequence[Effect]) -> Finish:
        """From the effects of `Begin` to the end of the session. Raises LeaseLost and RecordRejected."""
        stop = self._execution.stop.requested
        pump: asyncio.Task[list[Control]] | None = None
        controls = self.record(effects)
        told = False
        late: str | None = None
        try:
            while True:
                for control in controls:
                    match control:
                        case Close():
                            await _ended(pump, late)
                            pump = None
                        case Open():
                            await _ended(pump)
                            # Whoever wants the end may have said so before; then no model is asked.
                            pump = None if stop.done() else asyncio.create_task(self._pump(control))
                        case Finish():
                            return control
                        case Ask():
                            # What is asked while a stream is read is answered there; its stream is closed.
                            pump = asyncio.create_task(self._answer(control))
                done = await self._first_of(pump, None if told else stop)
                late = None
                if not told and stop.done():
                    told = True
                    controls = self.record(self._machine.feed(Abort(stop.result()), self._clock.mono_ms()))
                elif pump is not None and pump in done:
                    finished, pump = pump, None
                    controls = finished.result()
                elif self._is_due():
                    effects = self._machine.feed(Tick(), self._clock.mono_ms())
                    late = _lateness(effects)
                    controls = self.record(effects)
                else:
                    controls = []
        finally:
            await _ended(pump)

    async def _first_of(
        self, pump: asyncio.Task[list[Control]] | None, stop: asyncio.Future[str] | None
    ) -> set[asyncio.Future[Any]]:
        """Those that are done; none when a limit strikes, or comes nearer, before any is."""
        if pump is None and self._machine.deadline_ms is None and (stop is None or not stop.done()):
            raise NotTaken("the machine waits for nothing that could still happen")
        waits: set[asyncio.Future[Any]] = {wait for wait in (pump, stop) if wait is not None}
        if self._nearer.done():
            self._nearer = asyncio.get_running_loop().create_future()
        self._awaited_ms = deadline = self._deadline_ms
        done, _ = await asyncio.wait(
            {*waits, self._nearer},
            timeout=self._seconds_until(deadline),
            return_when=asyncio.FIRST_COMPLETED,
        )
        return done

    @property
    def _deadline_ms(self) -> float | None:
        """When the next limit strikes; while reading is held up by us, those on the model do not run."""
        return self._machine.limits.total_at_ms if self._held else self._machine.deadline_ms

    def _look_at_limits(self) -> None:
        """The answer may have ended the wait for its beginning, and begun a shorter one for what follows."""
        deadline = self._deadline_ms
        if deadline is None or self._nearer.done():
            return
        if self._awaited_ms is None or deadline < self._awaited_ms:
            self._nearer.set_result(None)

    def _seconds_until(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._clock.mono_ms()) / 1000

    def _is_due(self) -> bool:
        deadline = self._deadline_ms
        return deadline is not None and self._clock.mono_ms() >= deadline

    def record(self, effects: Sequence[Effect], *, urgent: bool = True) -> list[Control]:
        """Append the events; what is left is to be performed."""
        controls: list[Control] = []
        run_log = self._log
        for effect in effects:
            if type(effect) is Token:
                run_log.token(effect.text, self._index, self._attempt, self._fallback)
            elif isinstance(effect, Event):
                run_log.event(effect, self._index, self._attempt, self._fallback, urgent=urgent)
            elif isinstance(effect, Position):
                self._attempt, self._fallback = effect.attempt, effect.fallback_index
            elif isinstance(effect, AttemptEnded):
                if self._account is not None:
                    self._account.ended(effect, self._fallback, self._attempt)
            else:
                if isinstance(effect, Finish) and effect.error is None:
                    self._on_complete()
                controls.append(effect)
        return controls

    async def _pump(self, opening: Open) -> list[Control]:
        """Read one model stream into the machine, until the machine wants something else."""
        try:
            adapter_id, stream = self._open_model(opening)
            if isinstance(stream, HeldStream):
                await self._hold(stream.admitted())
            if self._account is not None:
                self._account.sent()
            async with stream as batches:
                if controls := await self._take([Opened(adapter_id)]):
                    return controls
                watched = self._log.feed.watchers > 0
                async for batch in batches:
                    rest = batch
                    if watched:
                        # The first word is stored, and shown, while what came with it is read.
                        watched, rest = False, batch[1:]
                        if controls := await self._take(batch[:1]):
                            return controls
                        await asyncio.sleep(0)
                    if controls := await self._take(rest):
                        return controls
                    self._look_at_limits()
                    if self._log.backlog:
                        await self._hold(self._log.committed())
            fault = None
        except ProviderError as failure:
            fault = failure.fault
        except _BUGS as bug:
            log.exception("provider failed by a bug")
            fault = Fault(FaultKind.INTERNAL, f"The adapter failed: {type(bug).__name__}", type(bug).__name__)
        return await self._take([Closed() if fault is None else Failed(fault)])

    async def _take(self, inputs: Sequence[Opened | Chunk | Failed | Closed]) -> list[Control]:
        """Feed the machine and record what comes of it, until it wants something done.

        A question is answered in between: nothing more is read until then.
        """
        now = self._clock.mono_ms()
        for item in inputs:
            controls = self._feed(item, now)
            while controls and isinstance(controls[-1], Ask):
                if len(controls) > 1:
                    # The stream is to be closed first.
                    return controls
                controls = await self._answer(controls[-1])
                now = self._clock.mono_ms()
            if controls:
                return controls
        return []

    async def _answer(self, ask: Ask) -> list[Control]:
        """Have something decided, and go on with it."""
        answer = await self._decide(ask, self._machine.options.retry)
        controls = self._feed(answer, self._clock.mono_ms())
        self._look_at_limits()
        return controls

    def _feed(self, item: Input, now_ms: float) -> list[Control]:
        try:
            effects = self._machine.feed(item, now_ms)
            # That an answer begins can wait for its first words, which would else wait for it to be stored.
            return self.record(effects, urgent=type(item) is not Opened) if effects else []
        except _BUGS as bug:
            # The machine has gone on, so the provider must not be blamed: it would wait for ever.
            raise NotTaken(f"{type(bug).__name__}: {bug}") from bug

    async def _hold(self, wait: Awaitable[None]) -> None:
        """Wait for something of ours, such as the log: what is not stored must not pile up."""
        self._held = True
        began = self._clock.mono_ms()
        try:
            await wait
        finally:
            self._held = False
            now = self._clock.mono_ms()
            self._machine.feed(Held(now - began), now)
            self._look_at_limits()


def _lateness(effects: Sequence[Effect]) -> str | None:
    """Why a stream is closed that has kept a limit waiting; None when it has not."""
    for effect in effects:
        if type(effect) is TimeoutTriggered:
            return LATE if effect.configured_ms >= PATIENT_MS else HASTY
    return None


async def _ended(pump: asyncio.Task[list[Control]] | None, why: str | None = None) -> None:
    """Cut a model stream off and wait until its connection is closed, for a while."""
    if pump is None:
        return
    if not pump.done():
        pump.cancel(why)
        await asyncio.wait([pump], timeout=CLOSING_S)
    if not pump.done():
        log.warning("model stream does not close", waited_s=CLOSING_S)
        pump.add_done_callback(_told_too_late)
    elif not pump.cancelled() and (failure := pump.exception()) is not None:
        raise failure


def _told_too_late(pump: asyncio.Task[list[Control]]) -> None:
    if not pump.cancelled() and (failure := pump.exception()) is not None:
        log.warning("model stream failed to close", error=repr(failure))
