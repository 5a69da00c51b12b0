"""Note what the attempts of one stream used and cost, each as it ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from app.core.lifecycle.effects import AttemptEnded
from app.core.lifecycle.standing import Purpose
from app.core.usage.counts import Usage, length_of, usage_of
from app.ports.ambient import Clock
from app.ports.attempts import NewAttempt
from app.ports.provider import ModelEndpoint, Opening
from app.services.execution import Execution


class Account:
    """The attempts of one stream; their rows are committed with the events that tell of their ends."""

    def __init__(
        self,
        execution: Execution,
        stream: int,
        purpose: Purpose,
        endpoints: Sequence[ModelEndpoint],
        clock: Clock,
    ) -> None:
        """`endpoints` are the models of the stream, the primary first."""
        self._execution = execution
        self._stream = stream
        self._purpose = purpose
        self._endpoints = endpoints
        self._clock = clock
        self._asked: Opening | None = None
        self._is_sent = False
        self._began: datetime | None = None
        """When the attempt first asked."""
        self._before = Usage(0, 0)
        """What the calls used after which it was paused."""

    def asked(self, opening: Opening) -> None:
        """A model call begins, the first or another one of its attempt: this is to be sent."""
        self._asked, self._is_sent = opening, False
        self._began = self._began or self._now()

    def sent(self) -> None:
        """Nothing of ours holds it back any more."""
        self._is_sent = True

    def ended(self, end: AttemptEnded, fallback_index: int, attempt: int) -> None:
        """It is over; the attempt counts once none of its calls follows."""
        usage = self._before.plus(self._used(end))
        if end.outcome == "paused":
            self._before = usage
            return
        now = self._now()
        began, self._began, self._before = self._began or now, None, Usage(0, 0)
        endpoint = self._endpoints[fallback_index]
        cost = None if endpoint.price is None else endpoint.price.cost_of(usage)
        self._execution.totals.add(usage, cost)
        self._execution.log.write(
            NewAttempt(
                self._stream,
                fallback_index,
                attempt,
                self._purpose,
                endpoint.name,
                endpoint.provider,
                endpoint.model,
                end.outcome,
                end.code,
                usage,
                cost,
                began,
                now,
            )
        )

    def _used(self, end: AttemptEnded) -> Usage:
        opening, self._asked = self._asked, None
        if opening is None or not self._is_sent:
            return Usage(0, 0)  # it was ended before its turn came
        said = len(opening.continue_from) + (0 if opening.paused is None else len(opening.paused.text))
        return usage_of(end, lambda: length_of(opening.prompt) + said)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
