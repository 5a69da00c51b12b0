"""When a stream has waited long enough; all times are readings of the caller's clock in milliseconds."""

from __future__ import annotations

from enum import StrEnum

from app.core.lifecycle.options import TimeoutOptions


class Limit(StrEnum):
    """What has run out."""

    INITIAL = "initial"
    INTER = "inter"
    PAUSE = "pause"
    """The pause before a retry."""
    TOTAL = "total"


class Limits:
    """The clocks of one session.

    A token only stores a number (`progress_ms`); when the next limit strikes is worked out when asked for.
    """

    __slots__ = (
        "_alive_cap_ms",
        "_alive_ms",
        "_asked_ms",
        "_halted_ms",
        "_initial_ms",
        "_inter_ms",
        "_resume_ms",
        "_total_ms",
        "progress_ms",
        "total_at_ms",
    )

    def __init__(self, options: TimeoutOptions) -> None:
        self._initial_ms = options.initial_ms
        self._inter_ms = options.inter_ms
        self._total_ms = options.total_ms
        self._alive_cap_ms = options.alive_ms
        self._asked_ms: float | None = None
        self._resume_ms: float | None = None
        self._alive_ms = 0.0
        self._halted_ms: float | None = None
        self.progress_ms: float | None = None
        """When the answer last came forward; None before its first sign and while nothing is read."""
        self.total_at_ms: float | None = None
        """When the time for the whole session is over, whoever is waited for; None when it is not limited."""

    def begin(self, now_ms: float) -> None:
        """The session begins."""
        if self._total_ms is not None:
            self.total_at_ms = now_ms + self._total_ms

    def ask(self, now_ms: float) -> None:
        """A model server is asked."""
        self._asked_ms, self.progress_ms, self._resume_ms = now_ms, None, None

    def alive(self, now_ms: float) -> None:
        """The server gave a sign of life without coming forward."""
        self._alive_ms = now_ms

    def pause(self, until_ms: float) -> None:
        """Nothing is read until then."""
        self._asked_ms = self.progress_ms = None
        self._resume_ms = until_ms

    def end(self) -> None:
        """The session is over; nothing is waited for any more."""
        self._asked_ms = self.progress_ms = self._resume_ms = self.total_at_ms = None
        self._halted_ms = None

    def halt(self, now_ms: float) -> None:
        """Something is decided outside; until then only the total limit runs."""
        self._halted_ms = now_ms

    def go_on(self, now_ms: float) -> None:
        """It is decided; the time does not count against the server."""
        if self._halted_ms is not None:
            self.hold(now_ms - self._halted_ms, now_ms)
            self._halted_ms = None

    def hold(self, ms: float, now_ms: float) -> None:
        """We did not read for so long until now, so that time does not count against the server."""
        if self.progress_ms is not None:
            self.progress_ms = min(self.progress_ms + ms, now_ms)
            self._alive_ms = min(self._alive_ms + ms, now_ms)
        elif self._asked_ms is not None:
            self._asked_ms = min(self._asked_ms + ms, now_ms)
            self._alive_ms = min(self._alive_ms + ms, now_ms)

    @property
    def deadline_ms(self) -> float | None:
        """When the next limit strikes; None when none runs."""
        if self._halted_ms is not None:
            return self.total_at_ms
        times = [at for at in (self.total_at_ms, self._resume_ms, self._silence_ms()) if at is not None]
        return min(times) if times else None

    def struck(self, now_ms: float) -> Limit | None:
        """The limit that has been reached, the gravest first."""
        if _reached(self.total_at_ms, now_ms):
            return Limit.TOTAL
        if self._halted_ms is not None:
            return None
        if _reached(self._resume_ms, now_ms):
            return Limit.PAUSE
        if _reached(self._silence_ms(), now_ms):
            return Limit.INITIAL if self.progress_ms is None else Limit.INTER
        return None

    def _silence_ms(self) -> float | None:
        """When the server will have been silent for too long."""
        begun = self.progress_ms is not None
        since_ms = self.progress_ms if begun else self._asked_ms
        limit_ms = self._inter_ms if begun else self._initial_ms
        if since_ms is None or limit_ms is None:
            return None
        by_life = min(self._alive_ms + limit_ms, since_ms + self._alive_cap_ms)
        return max(since_ms + limit_ms, by_life)


def _reached(at_ms: float | None, now_ms: float) -> bool:
    return at_ms is not None and now_ms >= at_ms
