"""Scripts that together walk every transition of a model stream that can be walked."""

from __future__ import annotations

from typing import Any, Final

from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import (
    NO_RETRIES,
    NO_TIMEOUTS,
    ContinuationOptions,
    LifecycleOptions,
    RetryOptions,
    TimeoutOptions,
)
from app.core.lifecycle.table import State
from tests.support.stream_driver import StreamDriver

Edge = tuple[str, str]


class WatchedMachine(StreamMachine):
    """Notes every transition."""

    __slots__ = ("walked",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.walked: list[Edge] = []

    def enter(self, state: State) -> None:
        before = self.state
        super().enter(state)
        self.walked.append((before.value, state.value))


RESET: Final[dict[str, Any]] = {"error": {"kind": "network", "type": "connection_reset"}}
DENIED: Final[dict[str, Any]] = {"error": {"kind": "status", "status": 401}}
END: Final[dict[str, Any]] = {"end": "stop"}
TEXT: Final[dict[str, Any]] = {"text": "a"}
CALL: Final[dict[str, Any]] = {"tool_call": {"index": 0, "name": "add", "arguments": "{}"}}
GOOD: Final = [[TEXT, END]]
BEGUN: Final = [{"text": "The tide "}, {"text": "comes in "}, RESET]
"""What a resumed attempt goes on from."""
REPEATED: Final = {"text": "comes "}
"""The beginning of what may be a repetition."""
REMARK: Final = {"text": "Sure! Here is the rest: "}

STANDARD = LifecycleOptions(timeout=NO_TIMEOUTS)
ONCE = LifecycleOptions(timeout=NO_TIMEOUTS, retry=NO_RETRIES)
DEADLINE = LifecycleOptions(timeout=TimeoutOptions(initial_ms=None, inter_ms=None, total_ms=100))
EACH = ContinuationOptions(checkpoint_every=1)
RESUMED = LifecycleOptions(timeout=NO_TIMEOUTS, continuation=EACH)
RESUMED_ONCE = LifecycleOptions(timeout=NO_TIMEOUTS, retry=RetryOptions(1, 1), continuation=EACH)

SCRIPTS: Final[dict[str, tuple[LifecycleOptions, list[list[list[dict[str, Any]]]]]]] = {
    "text": (STANDARD, [GOOD]),
    "call first": (STANDARD, [[[CALL, END]]]),
    "text, call, text": (STANDARD, [[[TEXT, CALL, TEXT, END]]]),
    "reset while waiting": (STANDARD, [[[RESET], *GOOD]]),
    "reset in the text": (STANDARD, [[[TEXT, RESET], *GOOD]]),
    "reset in a call": (STANDARD, [[[CALL, RESET], *GOOD]]),
    "empty, then good": (STANDARD, [[[END], *GOOD]]),
    "denied while waiting": (ONCE, [[[DENIED]], GOOD]),
    "denied in the text": (ONCE, [[[TEXT, DENIED]], GOOD]),
    "denied in a call": (ONCE, [[[CALL, DENIED]], GOOD]),
    "empty, then fallback": (ONCE, [[[END]], GOOD]),
    "last one denied": (ONCE, [[[DENIED]]]),
    "last one denied in the text": (ONCE, [[[TEXT, DENIED]]]),
    "last one denied in a call": (ONCE, [[[CALL, DENIED]]]),
    "last one empty": (ONCE, [[[END]]]),
    "deadline in a pause": (DEADLINE, [[[TEXT, RESET]]]),
    "paused": (STANDARD, [[[TEXT, {"end": "paused"}], [TEXT, END]]]),
    "resumed": (RESUMED, [[BEGUN, [REPEATED, {"text": "in at noon."}, END]]]),
    "ended while it repeats": (RESUMED, [[BEGUN, [REPEATED, END]]]),
    "reset while it repeats": (RESUMED, [[BEGUN, [REPEATED, RESET], *GOOD]]),
    "denied while it repeats": (RESUMED_ONCE, [[BEGUN, [REPEATED, DENIED]], GOOD]),
    "last one denied while it repeats": (RESUMED_ONCE, [[BEGUN, [REPEATED, DENIED]]]),
    "a remark, then afresh": (RESUMED, [[BEGUN, [REMARK, TEXT, END], *GOOD]]),
    "a remark, then fallback": (RESUMED_ONCE, [[BEGUN, [REMARK, TEXT, END]], GOOD]),
    "a remark of the last one": (RESUMED_ONCE, [[BEGUN, [REMARK, TEXT, END]]]),
}

UNWALKED: Final[dict[Edge, str]] = {
    ("INIT", "ERROR"): "a budget without a model call",
    ("INIT", "FALLBACK"): "a missing adapter is a failed opening, in WAITING_FOR_TOKEN",
    ("CONTINUATION_MATCHING", "FINALIZING"): "what was held back is settled first",
    ("CHECKPOINT_VERIFYING", "FINALIZING"): "the text goes on within the same input",
    ("RETRYING", "STREAMING"): "walked through WAITING_FOR_TOKEN",
    ("FALLBACK", "STREAMING"): "walked through WAITING_FOR_TOKEN",
    ("FALLBACK", "ERROR"): "the next model is asked within the same input",
}
"""Edges of the contract that no script walks, and why."""


def walked_by() -> dict[Edge, str]:
    """For each edge that is walked the first script that does."""
    found: dict[Edge, str] = {}
    for name, (options, scripts) in SCRIPTS.items():
        machine = WatchedMachine(options, models=len(scripts), draw=lambda: 0.5)
        StreamDriver(machine, scripts).run()
        for edge in machine.walked:
            found.setdefault(edge, name)
    return found
