"""Where one session stands: the facts that its handlers read and change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from app.core.events.base import Callback
from app.core.lifecycle.budget import Budget
from app.core.lifecycle.draft import Draft
from app.core.lifecycle.inspection import NEVER, Inspection
from app.core.lifecycle.limits import Limits
from app.core.lifecycle.options import LifecycleOptions
from app.core.lifecycle.outage import Outage
from app.core.lifecycle.seam import Seam
from app.core.lifecycle.table import State, step
from app.core.lifecycle.tally import Tally
from app.core.lifecycle.toolcalls import ToolCall
from app.core.lifecycle.verdict import Spent
from app.core.opaque import OpaqueBlock

Purpose = Literal["main", "repair", "voter"]

UNDER_WAY: Final = frozenset(
    {
        State.WAITING_FOR_TOKEN,
        State.STREAMING,
        State.TOOL_CALL_DETECTED,
        State.CONTINUATION_MATCHING,
        State.CHECKPOINT_VERIFYING,
    }
)
"""The states in which a model stream is open or being opened."""


class Standing:
    """Everything that is known about a session."""

    __slots__ = (
        "attempt",
        "attempt_runs",
        "budget",
        "draft",
        "draw",
        "fallback_index",
        "first_token",
        "in_fallback",
        "index",
        "inspection",
        "last_pause_ms",
        "limits",
        "look_at",
        "models",
        "now_ms",
        "opened",
        "openings",
        "options",
        "outage",
        "prefix_refused",
        "purpose",
        "resume_at",
        "resumed",
        "saved_at",
        "seam",
        "spent",
        "state",
        "steady",
        "tally",
        "timer",
        "tool_calls",
    )

    def __init__(
        self,
        options: LifecycleOptions,
        *,
        models: int,
        draw: Callable[[], float],
        purpose: Purpose = "main",
        calls_left: int | Budget = 20,
        index: int | None = None,
        timer: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`models` counts the primary and its fallbacks; `draw` gives random numbers from 0 up to 1;
        `calls_left` is how many streams the run may still open, a `Budget` where several streams share it;
        `index` is a voter's, from 0; `timer` gives milliseconds, to tell how long a rule took.
        """
        self.options = options
        self.timer = timer
        self.now_ms = 0.0
        """The clock at the last input."""
        self.models = models
        self.draw = draw
        self.purpose = purpose
        self.index = index
        self.budget = calls_left if isinstance(calls_left, Budget) else Budget(calls_left)
        self.state = State.INIT
        self.attempt = 1
        """Which attempt on the present model, 1-based."""
        self.attempt_runs = False
        """Whether an attempt was opened whose end was not told."""
        self.fallback_index = 0
        """The present model: 0 is the primary."""
        self.in_fallback = False
        """Whether a fallback has begun whose end was not told."""
        self.openings = 0
        """Attempts opened over all models."""
        self.tool_calls: list[ToolCall] = []
        """The calls that the model asks for, by index; empty before COMPLETE."""
        self.draft = Draft()
        self.limits = Limits(options.timeout)
        self.outage = Outage()
        self.tally = Tally()
        self.spent = Spent()
        self.last_pause_ms = 0.0
        """The back-off before the last retry of the present model."""
        self.opened = False
        """Whether the present attempt's answer has begun."""
        self.first_token = True
        """Whether the next token is the first of its attempt."""
        self.steady = False
        """Whether a text chunk is now a TOKEN and nothing else, until `look_at`."""
        self.inspection = Inspection(options)
        self.look_at: float = NEVER
        """At how many tokens something is looked at or saved."""
        self.saved_at = 0
        """Tokens of the last checkpoint that was saved; 0 where there is none."""
        self.resume_at = 0
        """Tokens that the next attempt may go on from, if they pass the rules."""
        self.resumed = False
        """Whether the present attempt was asked to go on from a checkpoint."""
        self.prefix_refused = False
        """Whether a server has refused that."""
        self.seam: Seam | None = None
        """Holds the beginning of a resumed answer back; None once it is joined."""

    @property
    def deadline_ms(self) -> float | None:
        """When a `Tick` must be fed if nothing else happens before; None when nothing is waited for."""
        return self.limits.deadline_ms

    @property
    def text(self) -> str:
        """The answer so far, as a client that obeys `contentOffset` sees it."""
        return self.draft.text

    @property
    def length(self) -> int:
        """Code points of `text`."""
        return self.draft.length

    @property
    def token_count(self) -> int:
        """Text chunks that make up `text`."""
        return len(self.draft.texts)

    @property
    def reasoning(self) -> str:
        """The present attempt's reasoning."""
        return "".join(self.draft.reasonings)

    @property
    def opaque(self) -> Sequence[OpaqueBlock]:
        """What the provider wants back of the answer; nothing of one that is cut, or of two attempts."""
        is_whole = self.finish_reason in ("stop", "tool_calls") and not self.resumed
        return self.draft.opaque if is_whole else ()

    @property
    def refusal(self) -> str:
        """The text in which the model refused."""
        return "".join(self.draft.refusals)

    @property
    def finish_reason(self) -> str | None:
        """Why the model stopped, in our words; None when it did not say or the word is not known."""
        return self.draft.finish_reason

    @property
    def finish_reason_raw(self) -> str | None:
        """Why the model stopped, in the provider's word."""
        return self.draft.finish_reason_raw

    def enter(self, state: State) -> None:
        """Change the state. Raises `IllegalTransition`, and changes nothing, where the table has no edge."""
        self.state = step(self.state, state)
        self.steady = False

    def on_start(self, *, is_retry: bool) -> Callback:
        """The callback that tells of the present attempt."""
        return Callback("on_start", (self.attempt, is_retry, self.fallback_index > 0))
