"""Where a stream stands, from its log alone: no model, no clock, no rule is asked again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.core.lifecycle.table import State

_ENTERED: Final[Mapping[str, State]] = {
    "STREAM_INIT": State.WAITING_FOR_TOKEN,
    "TOKEN": State.STREAMING,
    "RETRY_START": State.RETRYING,
    "FALLBACK_START": State.FALLBACK,
    "FINALIZATION_START": State.FINALIZING,
    "COMPLETE": State.COMPLETE,
    "ABORT_REQUESTED": State.ERROR,
}
"""Events that tell of a state; a resumed attempt's states before its first TOKEN leave none."""

_OF_THE_ANSWER: Final = frozenset({"model", "content"})
"""Categories of faults whose retries count as the model's."""


@dataclass(slots=True)
class Replay:
    """Takes the events of one stream in order, as they are read back, and knows what the machine knew."""

    state: State = State.INIT
    attempt: int = 1
    fallback_index: int = 0
    openings: int = 0
    texts: list[str] = field(default_factory=list)
    """The pieces of the text that stands."""
    model_retries: int = 0
    network_retries: int = 0
    violations: int = 0
    checkpoints: int = 0
    drift_detected: bool = False
    tool_calls: list[tuple[str, str]] = field(default_factory=list)
    """Id and name of each call that the standing answer asks for."""

    @property
    def text(self) -> str:
        """The text that stands."""
        return "".join(self.texts)

    def take(self, kind: str, meta: Mapping[str, Any]) -> None:
        """Apply one event: its type and its meta as on the wire."""
        self.state = _ENTERED.get(kind, self.state)
        if "contentOffset" in meta:
            self._cut(meta["contentOffset"])
        match kind:
            case "TOKEN":
                self.texts.append(meta["text"])
            case "ATTEMPT_START":
                self.attempt = meta["attempt"]
            case "FALLBACK_START":
                self.attempt, self.fallback_index = 1, meta["toIndex"]
            case "STREAM_INIT":
                self.openings += 1
                self.tool_calls.clear()
            case "TOOL_REQUESTED":
                self.tool_calls.append((meta["toolCallId"], meta["toolName"]))
            case "SESSION_END" if not meta["success"]:
                self.state = State.ERROR
        self._count(kind, meta)

    def _count(self, kind: str, meta: Mapping[str, Any]) -> None:
        match kind:
            case "RETRY_START" if meta["category"] in _OF_THE_ANSWER:
                self.model_retries += 1
            case "RETRY_START":
                self.network_retries += 1
            case "GUARDRAIL_PHASE_END":
                self.violations += len(meta["violations"])
            case "CHECKPOINT_SAVED":
                self.checkpoints += 1
            case "DRIFT_CHECK_RESULT":
                self.drift_detected |= meta["detected"]

    def _cut(self, offset: int) -> None:
        """So many code points stay; a cut lies between two tokens."""
        kept, length = [], 0
        for piece in self.texts:
            if length + len(piece) > offset:
                break
            kept.append(piece)
            length += len(piece)
        self.texts = kept
