"""Where a stream stands, from its log alone: no model, no clock, no rule is asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.core.lifecycle import faults
from app.core.lifecycle.closing import OVER
from app.core.lifecycle.effects import Finish, StreamError
from app.core.lifecycle.table import State
from app.core.lifecycle.toolcalls import ToolCall
from app.core.lifecycle.verdict import Spent

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
RECOVERY: Final = "recovery"
"""The category of a retry whose reason is that the process was lost."""

_NO_OTHER_MODEL: Final = frozenset(trouble.code for trouble in faults.TROUBLES if not trouble.fallback)


@dataclass(slots=True)
class Replay:
    """Takes the events of one stream in order, as they are read back, and knows what the machine knew.

    What the machine kept to itself is not known: reasoning, refusals, fragments of tool calls, and text that
    was held back because it might repeat a checkpoint.
    """

    state: State = State.INIT
    attempt: int = 1
    fallback_index: int = 0
    openings: int = 0
    began_ms: float = 0.0
    """When the session began, milliseconds since the epoch."""
    texts: list[str] = field(default_factory=list)
    """The pieces of the text that stands."""
    saved_at: int = 0
    """Pieces of the last checkpoint that was saved, and still stands."""
    spent: Spent = field(default_factory=Spent)
    """Retries of the present model's stream."""
    in_fallback: bool = False
    announced: bool = False
    """Whether a retry was announced whose attempt has not begun."""
    pause_ends_ms: float | None = None
    """When the pause before that attempt is over, milliseconds since the epoch; None where none was told."""
    last_pause_ms: float = 0.0
    model_retries: int = 0
    network_retries: int = 0
    violations: int = 0
    checkpoints: int = 0
    drift_detected: bool = False
    tool_calls: list[ToolCall] = field(default_factory=list)
    """The calls that the standing answer asks for; the words in which the model wrote them are not known."""
    finish_reason: str | None = None
    finish_reason_raw: str | None = None
    ended: bool = False
    """Whether the session is over."""
    fault_category: str | None = None
    """Of the fault for which the announced retry is made."""
    fault_position: int | None = None
    """Where in the text that fault lies, in code points; None where it has no place."""
    causes: list[StreamError] = field(default_factory=list)
    """The last error of each model that was given up."""
    dropped_ms: float | None = None
    """When the connection dropped, if it was not restored since; milliseconds since the epoch."""
    outage_ms: float | None = None
    """When the network failed, if it has not recovered since; likewise."""
    failed_attempts: int = 0
    """Since the last token."""
    _error: StreamError | None = None
    _cut_short: bool = False
    _aborted_by: str | None = None

    @property
    def text(self) -> str:
        """The text that stands."""
        return "".join(self.texts)

    @property
    def calls_taken(self) -> int:
        """Model calls that were made, or decided on."""
        return self.openings + self.announced

    def take(
        self,
        kind: str,
        meta: Mapping[str, Any],
        ts: float = 0.0,
        callbacks: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Apply one event: its type, its meta and its callbacks as on the wire, and its time."""
        self.state = _ENTERED.get(kind, self.state)
        if "contentOffset" in meta:
            self._cut(meta["contentOffset"])
        match kind:
            case "SESSION_START":
                self.began_ms = ts
            case "TOKEN":
                self.say(meta["text"])
            case "ATTEMPT_START":
                self.attempt = meta["attempt"]
                self.announced, self.pause_ends_ms = False, None
            case "FALLBACK_START":
                self._fall_back(meta["toIndex"])
            case "FALLBACK_END":
                self.in_fallback = False
            case "STREAM_INIT":
                self.openings += 1
                self.tool_calls.clear()
            case "TOOL_REQUESTED":
                self._request(meta)
            case "COMPLETE":
                self.finish_reason = meta.get("finishReason")
                self.finish_reason_raw = meta.get("finishReasonRaw")
            case "SESSION_END":
                self._end(meta["success"])
        self._count(kind, meta)
        self._fail(kind, meta, ts, callbacks)

    def say(self, text: str) -> None:
        """A TOKEN."""
        self.state = State.STREAMING
        self.failed_attempts = 0
        self.texts.append(text)

    def finish(self) -> Finish:
        """How the session ended; only of one that has ended."""
        if self.state is State.COMPLETE:
            return Finish(None)
        if self._aborted_by is not None:
            by_time = self._aborted_by == "timeout"
            trouble = faults.DEADLINE if by_time else faults.ABORTED
            message = OVER if by_time else f"ended by {self._aborted_by}"
            return Finish(faults.Failure(trouble, message).error, aborted=not by_time)
        return Finish(self._last_error())

    def _last_error(self) -> StreamError:
        last = self.causes[-1] if self.causes else StreamError("INTERNAL", "the stream failed", "internal")
        if self.fallback_index > 0 and not self._cut_short and last.code not in _NO_OTHER_MODEL:
            return faults.exhausted(self.causes)
        return last

    def _end(self, success: bool) -> None:
        self.ended = True
        if not success:
            self.state = State.ERROR
            self._give_up()

    def _fall_back(self, index: int) -> None:
        self.attempt, self.fallback_index = 1, index
        self.in_fallback, self.announced, self.pause_ends_ms = True, False, None
        self.spent, self.last_pause_ms = Spent(), 0.0
        self._give_up()

    def _give_up(self) -> None:
        if self._error is not None:
            self.causes.append(self._error)
            self._error = None

    def _request(self, meta: Mapping[str, Any]) -> None:
        index = len(self.tool_calls)
        self.tool_calls.append(ToolCall(index, meta["toolCallId"], meta["toolName"], meta["arguments"], ""))

    def _count(self, kind: str, meta: Mapping[str, Any]) -> None:
        match kind:
            case "RETRY_START":
                self._retry(meta["category"])
            case "RETRY_ATTEMPT" if meta["delayMs"] is not None:
                self.last_pause_ms = meta["delayMs"]
            case "GUARDRAIL_PHASE_END":
                self.violations += len(meta["violations"])
                places = [v["position"] for v in meta["violations"] if "position" in v]
                self.fault_position = min(places, default=None)
            case "CHECKPOINT_SAVED":
                self.checkpoints += 1
                self.saved_at = meta["tokenCount"]
            case "DRIFT_CHECK_RESULT":
                self.drift_detected |= meta["detected"]

    def _retry(self, category: str) -> None:
        self.announced, self.fault_category = True, category
        if category == RECOVERY:
            self.spent.recoveries += 1
            return
        self.spent.retries += 1
        if category in _OF_THE_ANSWER:
            self.spent.attempts += 1
            self.model_retries += 1
        else:
            self.network_retries += 1

    def _fail(
        self, kind: str, meta: Mapping[str, Any], ts: float, callbacks: Sequence[Mapping[str, Any]]
    ) -> None:
        match kind:
            case "RETRY_ATTEMPT":
                self.pause_ends_ms = ts + meta["delayMs"]
            case "ERROR":
                self.failed_attempts += 1
            case "NETWORK_ERROR" if self.outage_ms is None:
                self.outage_ms = ts
            case "CONNECTION_DROPPED":
                self.dropped_ms = ts
            case "CONNECTION_RESTORED":
                self.dropped_ms = None
            case "NETWORK_RECOVERY":
                self.outage_ms = None
            case "RETRY_GIVE_UP":
                self._cut_short = meta["reason"] == "model_calls_exhausted"
            case "ABORT_REQUESTED":
                self._aborted_by = meta["source"]
        for callback in callbacks:
            if callback["name"] == "on_error":
                self._error = StreamError.of(callback["args"][0])

    def _cut(self, offset: int) -> None:
        """So many code points stay; a cut lies between two tokens."""
        kept, length = [], 0
        for piece in self.texts:
            if length + len(piece) > offset:
                break
            kept.append(piece)
            length += len(piece)
        self.texts = kept
        self.saved_at = min(self.saved_at, len(kept))
