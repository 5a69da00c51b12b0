"""The figures of one session, over all its attempts and models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.core.events.base import TextRef
from app.core.events.session import SessionSummary
from app.core.lifecycle.effects import StreamError


@dataclass(slots=True)
class Tally:
    """Counts that no fallback resets."""

    began_ms: float = 0.0
    model_retries: int = 0
    """Retries because of the answer itself."""
    network_retries: int = 0
    """All other retries."""
    violations: int = 0
    """Findings of the guardrails."""
    checkpoints: int = 0
    """Checkpoints saved."""
    drift_detected: bool = False
    causes: list[StreamError] = field(default_factory=list)
    """The last error of each model that was given up."""

    def state(
        self, token_count: int, content_length: int, fallback_index: int, checkpoint_length: int
    ) -> dict[str, Any]:
        """What on_complete is given; the text stands in the log already, so it is only referred to."""
        return {
            "content": TextRef(content_length),
            "tokenCount": token_count,
            "checkpoint": TextRef(checkpoint_length) if checkpoint_length else "",
            "modelRetryCount": self.model_retries,
            "networkRetryCount": self.network_retries,
            "fallbackIndex": fallback_index,
        }

    def summary(self, token_count: int, fallback_index: int, now_ms: float) -> SessionSummary:
        """The last event of the session."""
        return SessionSummary(
            duration=round(now_ms - self.began_ms),
            token_count=token_count,
            start_ts=round(self.began_ms),
            end_ts=round(now_ms),
            drift_detected=self.drift_detected,
            guardrail_violations=self.violations,
            fallback_depth=fallback_index,
            retry_count=self.model_retries + self.network_retries,
            checkpoints_created=self.checkpoints,
        )
