"""How long the network has been away, told once it is back."""

from __future__ import annotations

from app.core.events.base import Event
from app.core.events.network import ConnectionDropped, ConnectionRestored, NetworkError, NetworkRecovery
from app.core.lifecycle.faults import Failure


class Outage:
    """Remembers drops and network errors until the next answer and the next token."""

    __slots__ = ("_dropped_ms", "_failed", "_since_ms")

    def __init__(
        self, dropped_ms: float | None = None, since_ms: float | None = None, failed: int = 0
    ) -> None:
        """What is known of one that has begun: when the connection dropped, since when the network fails, and
        how many attempts have failed since the last token.
        """
        self._dropped_ms = dropped_ms
        self._since_ms = since_ms
        self._failed = failed

    def failed(self, failure: Failure, *, opened: bool, now_ms: float) -> list[Event]:
        """An attempt failed; `opened` says whether its answer had begun."""
        self._failed += 1
        if not failure.trouble.network:
            return []
        if self._since_ms is None:
            self._since_ms = now_ms
        events: list[Event] = [NetworkError(failure.message, failure.trouble.retryable, failure.word)]
        if opened:
            self._dropped_ms = now_ms
            events.append(ConnectionDropped(failure.word or failure.message))
        return events

    def answered(self, now_ms: float) -> list[Event]:
        """A server accepted the request."""
        if self._dropped_ms is None:
            return []
        down_ms, self._dropped_ms = now_ms - self._dropped_ms, None
        return [ConnectionRestored(round(down_ms))]

    def token(self, now_ms: float) -> list[Event]:
        """The first token of an attempt arrived."""
        failed, self._failed = self._failed, 0
        if self._since_ms is None:
            return []
        down_ms, self._since_ms = now_ms - self._since_ms, None
        return [NetworkRecovery(failed, round(down_ms))]
