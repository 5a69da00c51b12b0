"""Hold model calls to the limits of their models: those that have to wait do so in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Final
from uuid import UUID

import structlog

from app.core.chunks import Chunk, UsageReport
from app.core.faults import Fault, FaultKind, ProviderError
from app.core.limits.options import ModelLimits
from app.core.limits.room import Broken, Circuit, Later, Outcome, Room
from app.ports.ambient import Clock
from app.ports.provider import HASTY, LATE, Capabilities, Held, ModelEndpoint, Opening, Provider
from app.services.stream import ModelStream

log = structlog.get_logger("capacity")

Key = UUID | str
"""The id of a project's model, or the name of one of the operator's."""
MOST_ROOMS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Condition:
    """How far the limits of a model are used in this process."""

    under_way: int
    waiting: int
    circuit: Circuit | None = None
    failures: int | None = None
    retry_after_ms: int | None = None


class Queue:
    """A room, and those who wait for a turn in it."""

    def __init__(self, limits: ModelLimits, clock: Clock) -> None:
        self.room = Room(limits, clock.mono_ms())
        self._clock = clock
        self._waiting: deque[asyncio.Future[Broken | None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether nobody is in it, and nothing would be forgotten with it."""
        return not self._waiting and self.room.is_fresh(self._clock.mono_ms())

    @property
    def condition(self) -> Condition:
        """See `Condition`."""
        breaker = self.room.breaker
        if breaker is None:
            return Condition(self.room.under_way, len(self._waiting))
        left = max(0.0, breaker.until_ms - self._clock.mono_ms()) if breaker.state is Circuit.OPEN else None
        retry = None if left is None else round(left)
        return Condition(self.room.under_way, len(self._waiting), breaker.state, breaker.failures, retry)

    async def enter(self, name: str) -> None:
        """Begin an attempt, after those that came before. Raises `ProviderError` when it is not let in."""
        verdict = Later(None) if self._waiting else self.room.begin(self._clock.mono_ms())
        if isinstance(verdict, Later):
            verdict = await self._wait(name, verdict)
        if verdict is not None:
            words = f"The model {name!r} has failed too often of late: its circuit is open."
            again = round(verdict.for_ms)
            raise ProviderError(Fault(FaultKind.HELD, words, "circuit_open", retry_after_ms=again))

    async def _wait(self, name: str, verdict: Later) -> Broken | None:
        wait_ms = self.room.limits.wait_ms
        turn: asyncio.Future[Broken | None] = asyncio.get_running_loop().create_future()
        if wait_ms:
            self._waiting.append(turn)
            if len(self._waiting) == 1:
                self._rouse(verdict)
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                return await turn
        except TimeoutError:
            if turn.done() and not turn.cancelled():
                return turn.result()
            words = f"The limits of the model {name!r} left it no turn within {wait_ms} ms."
            raise ProviderError(Fault(FaultKind.HELD, words, "limit_reached")) from None
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result() is None:
                self.leave(Outcome.NOTHING)
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    @property
    def probing(self) -> bool:
        """Whether the attempt that is let in now shows that the model is back."""
        return self.room.breaker is not None and self.room.breaker.state is Circuit.HALF_OPEN

    def answered(self) -> None:
        """What shows that the model is back has shown it."""
        if self.room.breaker is not None and self.probing:
            self.room.breaker.answer()
            log.warning("circuit", state=self.room.breaker.state, failures=self.room.breaker.failures)

    def leave(self, outcome: Outcome, *, tokens: int = 0, pause_ms: float = 0) -> None:
        """An attempt has ended: the next ones may begin."""
        now_ms, breaker = self._clock.mono_ms(), self.room.breaker
        before = None if breaker is None else breaker.state
        if pause_ms:
            self.room.pause(pause_ms, now_ms)
        self.room.end(outcome, now_ms, tokens=tokens)
        if breaker is not None and breaker.state is not before:
            log.warning("circuit", state=breaker.state, failures=breaker.failures)
        self._call()

    def _call(self) -> None:
        """Let in those who can be let in."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            verdict = self.room.begin(self._clock.mono_ms())
            if isinstance(verdict, Later):
                self._rouse(verdict)
                break
            self._waiting.popleft().set_result(verdict)

    def _rouse(self, verdict: Later) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if verdict.at_ms is not None:
            # Never at once: the two clocks need not agree.
            delay_s = max(1.0, verdict.at_ms - self._clock.mono_ms()) / 1_000
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._call)


class Capacity:
    """The rooms of all models that have limits, in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[tuple[Key, ModelLimits], Queue] = {}

    def limiting(self, providers: Mapping[str, Provider]) -> Mapping[str, Provider]:
        """The providers, held to the limits of the endpoints that they are given."""
        return {name: LimitedProvider(provider, self) for name, provider in providers.items()}

    def condition(self, key: Key, limits: ModelLimits) -> Condition | None:
        """How far a model's limits are used; None where it was never asked with these."""
        queue = self._queues.get((key, limits))
        return None if queue is None else queue.condition

    def queue(self, endpoint: ModelEndpoint, limits: ModelLimits) -> Queue:
        """Where attempts on the endpoint line up.

        Runs keep the limits that they began with: after a change, both are held to, each on its own.
        """
        key = (endpoint.id or endpoint.name, limits)
        queue = self._queues.get(key)
        if queue is None:
            if len(self._queues) >= MOST_ROOMS:
                self._queues = {key: queue for key, queue in self._queues.items() if not queue.idle}
            queue = self._queues[key] = Queue(limits, self._clock)
        return queue


class LimitedProvider:
    """A provider whose endpoints are held to their limits; those without any are passed on as they are."""

    def __init__(self, provider: Provider, capacity: Capacity) -> None:
        self._provider = provider
        self._capacity = capacity
        self.name = provider.name
        self.adapter_id = provider.adapter_id

    def check(self, endpoint: ModelEndpoint) -> None:
        """See the port."""
        self._provider.check(endpoint)

    def capabilities(self, endpoint: ModelEndpoint) -> Capabilities:
        """See the port."""
        return self._provider.capabilities(endpoint)

    def open(self, opening: Opening) -> ModelStream:
        """See the port; a stream of a model with limits is `ports.provider.Held`."""
        stream, limits = self._provider.open(opening), opening.endpoint.limits
        if limits is None:
            return stream
        endpoint, queue = opening.endpoint, self._capacity.queue(opening.endpoint, limits)
        return LimitedStream(stream, queue, endpoint.name, shared=endpoint.id is None)


class LimitedStream(AbstractAsyncContextManager[AsyncIterator[Sequence[Chunk]]], Held):
    """A model stream that takes a turn in a room."""

    def __init__(self, stream: ModelStream, queue: Queue, name: str, *, shared: bool) -> None:
        """`shared` is a model that several projects ask."""
        self._shared = shared
        self._stream = stream
        self._queue = queue
        self._name = name
        self._admitted = False
        self._probes = False
        self._used = 0

    async def admitted(self) -> None:
        """See `ports.provider.Held`."""
        if not self._admitted:
            await self._queue.enter(self._name)
            self._admitted = True
            self._probes = self._queue.probing

    async def __aenter__(self) -> AsyncIterator[Sequence[Chunk]]:
        await self.admitted()
        try:
            batches = await self._stream.__aenter__()
        except BaseException as failure:
            self._leave(failure)
            raise
        if self._probes or self._queue.room.limits.tokens_per_minute:
            return self._watched(batches)
        return batches

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._stream.__aexit__(kind, failure, trace)
        finally:
            self._leave(failure)

    async def _watched(self, batches: AsyncIterator[Sequence[Chunk]]) -> AsyncIterator[Sequence[Chunk]]:
        async for batch in batches:
            if self._probes:
                self._probes = False
                self._queue.answered()
            for chunk in batch:
                if type(chunk) is UsageReport:
                    self._used = chunk.input_tokens + chunk.output_tokens
            yield batch

    def _leave(self, failure: BaseException | None) -> None:
        fault = failure.fault if isinstance(failure, ProviderError) else None
        pause_ms = 0 if fault is None or fault.status not in (429, 503) else fault.retry_after_ms or 0
        self._queue.leave(outcome_of(failure, shared=self._shared), tokens=self._used, pause_ms=pause_ms)


def outcome_of(failure: BaseException | None, *, shared: bool = False) -> Outcome:
    """What the end of an attempt says about its model.

    The circuit of a `shared` model does not open because one project has no patience with it.
    """
    match failure:
        case None:
            return Outcome.WELL
        case ProviderError(fault=fault):
            return _outcome_of(fault)
        case asyncio.CancelledError(args=(reason, *_)) if reason == LATE or (reason == HASTY and not shared):
            return Outcome.FAILED
    return Outcome.NOTHING


def _outcome_of(fault: Fault) -> Outcome:
    if fault.kind in (FaultKind.NETWORK, FaultKind.TLS):
        return Outcome.FAILED
    if fault.status is None:
        return Outcome.NOTHING
    # A refusal shows that it is there; a rate limit says nothing of how it is.
    if fault.status == 429:
        return Outcome.NOTHING
    return Outcome.FAILED if fault.status == 408 or fault.status >= 500 else Outcome.WELL
