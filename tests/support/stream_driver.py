"""Drive a stream machine through a script, synchronously and on a virtual clock.

A script is a list of steps in the form of tests/data/flows.json: `text`, `tool_call`, `wait_ms`,
`open_wait_ms`, `error` and `end`, and besides `reasoning`, `refusal`, `usage`, `opaque` (blocks that the
provider wants back), `keep_alive`, `finish` (a reason without an end mark) and `hold_ms` (we do not read
for so long). A script that runs out is a connection that closes; after a pause comes the next script.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.core import chunks
from app.core.events.base import Callback, Event, TextRef
from app.core.events.session import Token
from app.core.faults import Fault, FaultKind
from app.core.lifecycle.effects import Ask, AttemptEnded, Close, Finish, Open, Position
from app.core.lifecycle.inputs import Abort, Answer, Begin, Closed, Failed, Held, Input, Opened, Tick
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import LifecycleOptions
from app.core.opaque import OpaqueBlock
from app.core.operate.lifecycle import LifecycleBody, merge_lifecycle
from tests.support.decide import CALLED
from tests.support.invariants import assert_log

Step = Mapping[str, Any]
Scripts = Sequence[Sequence[Sequence[Step]]]
"""What model i yields at its j-th attempt; the last attempt repeats."""

_WAITS = {"wait_ms", "open_wait_ms", "hold_ms"}
_REASONS = {"stop", "length", "tool_calls", "content_filter", "refusal", "paused"}


@dataclass(slots=True)
class Seen:
    """One event as it was recorded."""

    event: Event
    attempt: int
    fallback_index: int
    at_ms: float


@dataclass(slots=True)
class Trace:
    """All that came out of a session."""

    seen: list[Seen] = field(default_factory=list)
    opens: list[Open] = field(default_factory=list)
    closes: int = 0
    asks: list[Ask] = field(default_factory=list)
    attempts: list[AttemptEnded] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def events(self) -> list[Event]:
        """The events, in order."""
        return [entry.event for entry in self.seen]

    @property
    def code(self) -> str | None:
        """The code of the error that the session ended with, None when it completed."""
        assert self.finish is not None
        return self.finish.error.code if self.finish.error else None

    def types(self) -> list[str]:
        """Their types."""
        return [event.type for event in self.events]

    def lines(self) -> list[tuple[str, Any]]:
        """Events as (type, meta) and callbacks as ("->name", args), in order, `on_token` included."""
        lines: list[tuple[str, Any]] = []
        text = ""
        for event in self.events:
            meta = event.meta()
            if "contentOffset" in meta:
                text = text[: meta["contentOffset"]]
            if isinstance(event, Token):
                text += event.text
            lines.append((event.type, shown(meta, text)))
            if isinstance(event, Token):
                lines.append(("->on_token", [event.text]))
            lines += [(f"->{call.name}", shown(list(call.args), text)) for call in event.callbacks]
        return lines

    def wire(self) -> list[dict[str, Any]]:
        """The events as a client reads them, with what a service adds."""
        text, out = "", []
        for entry in self.seen:
            meta = entry.event.meta()
            text = text[: meta.get("contentOffset", len(text))] + meta.get("text", "")
            out.append(
                {
                    "type": entry.event.type,
                    "ts": entry.at_ms,
                    "stream_id": "the only one",
                    "context": {},
                    "meta": shown(meta, text),
                }
            )
        return out

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The metas of all events of a type."""
        return [event.meta() for event in self.events if event.type == kind]

    def callbacks(self, name: str) -> list[Callback]:
        """All callbacks of a name."""
        return [callback for event in self.events for callback in event.callbacks if callback.name == name]

    def client_text(self) -> str:
        """The text as a client keeps it: TOKENs joined, cut at every `contentOffset`."""
        text = ""
        for event in self.events:
            meta = event.meta()
            if "contentOffset" in meta:
                text = text[: meta["contentOffset"]]
            if isinstance(event, Token):
                text += event.text
        return text


def shown(value: Any, text: str) -> Any:
    """A value with every reference to the stream's text replaced by the text."""
    match value:
        case TextRef(length=length):
            assert length <= len(text), "a reference beyond the text"
            return text[:length]
        case dict():
            return {key: shown(member, text) for key, member in value.items()}
        case list() | tuple():
            return [shown(member, text) for member in value]
    return value


class StreamDriver:
    """Does what the machine asks, from scripts instead of model servers."""

    def __init__(
        self,
        machine: StreamMachine,
        scripts: Scripts,
        *,
        abort_after_tokens: int | None = None,
        abort_at_ms: float | None = None,
        start_ms: float = 0.0,
        decide: Callable[[Ask], Answer | None] = lambda ask: Answer(error="nobody to ask"),
    ) -> None:
        """`decide` answers what the machine asks; None is never answered: a limit or an abort ends it."""
        self.decide = decide
        self.machine = machine
        self.trace = Trace()
        self.now_ms = start_ms
        self._scripts = scripts
        self._abort_after_tokens = abort_after_tokens
        self._abort_at_ms = abort_at_ms
        self._steps: deque[Step] | None = None
        self._opened = False
        self._place = Position(0, 0)
        self._pauses: Counter[int] = Counter()
        """By model."""

    def run(self, first: Input | None = None) -> Trace:
        """Drive the session from `Begin`, or what comes in its place, to `Finish`."""
        self.feed(first or Begin())
        while self.trace.finish is None:
            if self._abort_after_tokens is not None and self._tokens() >= self._abort_after_tokens:
                self._abort_after_tokens = None
                self.feed(Abort("user"))
            elif self._steps is None:
                deadline_ms = self.machine.deadline_ms
                assert deadline_ms is not None, "the machine waits for nothing"
                self._pass(deadline_ms - self.now_ms)
            else:
                self._step(self._steps)
        return self.trace

    def feed(self, item: Input) -> None:
        """Feed one input now and do what the machine asks."""
        effects = self.machine.feed(item, self.now_ms)
        self._perform(effects)
        while effects and isinstance(effects[-1], Ask):
            answer = self.decide(effects[-1])
            if answer is None:
                self._wait_while_asked()
                return
            self.now_ms += answer.duration_ms
            effects = self.machine.feed(answer, self.now_ms)
            self._perform(effects)

    def _wait_while_asked(self) -> None:
        """Nobody answers: the deadline or the abort comes first."""
        deadline_ms = self.machine.deadline_ms
        if self._abort_at_ms is None and deadline_ms is None:
            self._abort_at_ms = self.now_ms + 1
        self._pass((deadline_ms or self._abort_at_ms or 0) - self.now_ms)

    def _perform(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            assert self.trace.finish is None, "an effect after Finish"
            match effect:
                case Position():
                    self._place = effect
                case Open():
                    assert self._steps is None, "two streams open at once"
                    self.trace.opens.append(effect)
                    attempts = self._scripts[effect.fallback_index]
                    self._pauses[effect.fallback_index] += effect.paused is not None
                    nth = effect.attempt + self._pauses[effect.fallback_index]
                    self._steps = deque(attempts[min(nth, len(attempts)) - 1])
                    self._opened = False
                case Close():
                    self.trace.closes += 1
                    self._steps = None
                case Finish():
                    self.trace.finish = effect
                    assert len(self.trace.attempts) == len(self.trace.opens), "an attempt without an end"
                case AttemptEnded():
                    self.trace.attempts.append(effect)
                    assert len(self.trace.attempts) == len(self.trace.opens), "an end without its beginning"
                case Ask():
                    self.trace.asks.append(effect)
                case Event():
                    place = self._place
                    self.trace.seen.append(Seen(effect, place.attempt, place.fallback_index, self.now_ms))
                case _:
                    raise AssertionError(f"unknown effect {effect!r}")

    def _tokens(self) -> int:
        return sum(isinstance(entry.event, Token) for entry in self.trace.seen)

    def _step(self, steps: deque[Step]) -> None:
        step: Step = steps.popleft() if steps else {"closed": True}
        if not self._opened and "open_wait_ms" not in step and "error" not in step:
            self._opened = True
            steps.appendleft(step)
            self.feed(Opened("openai"))
        elif wait := _WAITS & step.keys():
            self._wait(steps, wait.pop(), step)
        elif "error" in step or "closed" in step:
            self._steps = None
            self.feed(Failed(fault_of(step["error"])) if "error" in step else Closed())
        else:
            for chunk in chunks_of(step):
                self.feed(chunk)

    def _wait(self, steps: deque[Step], kind: str, step: Step) -> None:
        if kind == "hold_ms":
            self.now_ms += step[kind]
            self.feed(Held(step[kind]))
            return
        rest_ms = self._pass(step[kind])
        if rest_ms > 0:
            steps.appendleft({kind: rest_ms})

    def _pass(self, ms: float) -> float:
        """Let time pass until a limit or the abort strikes; give what is left of it."""
        until_ms = self.now_ms + ms
        limit_ms = self.machine.deadline_ms
        if self._abort_at_ms is not None and self._abort_at_ms <= min(until_ms, limit_ms or until_ms):
            self.now_ms, self._abort_at_ms = max(self.now_ms, self._abort_at_ms), None
            self.feed(Abort("user"))
        elif limit_ms is not None and limit_ms <= until_ms:
            self.now_ms = max(self.now_ms, limit_ms)
            self.feed(Tick())
        else:
            self.now_ms = until_ms
        return until_ms - self.now_ms


def drive(
    scripts: Scripts, options: LifecycleOptions | None = None, *, calls_left: int = 20, **how: Any
) -> tuple[StreamMachine, Trace]:
    """Run one session from its scripts; `how` goes to `StreamDriver`."""
    machine = StreamMachine(
        options or LifecycleOptions(), models=len(scripts), draw=lambda: 0.5, calls_left=calls_left
    )
    trace = StreamDriver(machine, scripts, **how).run()
    assert_log(trace.wire())
    return machine, trace


def fault_of(error: Mapping[str, Any]) -> Fault:
    """The fault that a script's `error` stands for."""
    kind = FaultKind(error["kind"])
    message = error.get("message", error.get("type", "failed"))
    rest = {key: value for key, value in error.items() if key not in ("kind", "message")}
    return Fault(kind, message, **rest)


def chunks_of(step: Step) -> list[chunks.Chunk]:
    """The chunks that a step of a script stands for."""
    ((kind, value),) = step.items()
    simple: dict[str, Callable[[str], chunks.Chunk]] = {
        "text": chunks.TextDelta,
        "reasoning": chunks.ReasoningDelta,
        "refusal": chunks.RefusalDelta,
    }
    if kind in simple:
        return [simple[kind](value)]
    match kind:
        case "tool_call":
            return [chunks.ToolCallDelta(**value)]
        case "usage":
            return [chunks.UsageReport(**value)]
        case "opaque":
            return [chunks.OpaqueBlocks([OpaqueBlock(**block) for block in value])]
        case "keep_alive":
            return [chunks.KeepAlive()]
        case "finish":
            return [_finish_reason(value)]
        case "end":
            return [chunks.EndMark()] if value is None else [_finish_reason(value), chunks.EndMark()]
    raise ValueError(f"unknown step {kind!r}")


def _finish_reason(word: str) -> chunks.FinishReason:
    return chunks.FinishReason(word if word in _REASONS else None, word)


def options_of(wire: Mapping[str, Any]) -> LifecycleOptions:
    """The options of a golden flow: what it leaves out is off."""
    off: dict[str, Any] = {"timeout": None, "retry": None, "guardrails": "none", "drift": False}
    return merge_lifecycle(LifecycleBody.model_validate({**off, **wire}).level(), rules=CALLED).options
