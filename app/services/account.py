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
        self._asked: tuple[Opening, datetime] | None = None

    def asked(self, opening: Opening) -> None:
        """An attempt begins: this is sent."""
        self._asked = opening, self._now()

    def ended(self, end: AttemptEnded, fallback_index: int, attempt: int) -> None:
        """It is over."""
        asked, self._asked = self._asked, None
        now = self._now()
        endpoint = self._endpoints[fallback_index]
        if asked is None:
            # Nothing was sent: it was ended before its turn came.
            usage, began = Usage(0, 0), now
        else:
            opening, began = asked
            usage = usage_of(end, lambda: length_of(opening.prompt) + len(opening.continue_from))
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

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
