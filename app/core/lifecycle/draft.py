"""What one attempt has said so far, and whether it is an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.core.chunks import FinishReason, UsageReport
from app.core.json_text import storable
from app.core.lifecycle import faults
from app.core.lifecycle.faults import Failure, Trouble
from app.core.lifecycle.toolcalls import ToolCall, ToolCallParts
from app.core.opaque import MAX_BYTES, OpaqueBlock


class Draft:
    """The pieces of one attempt; they are joined only when somebody asks."""

    __slots__ = (
        "_kept",
        "_length",
        "_measured",
        "_paused_at",
        "_reported_at",
        "_thought",
        "_too_much",
        "finish_reason",
        "finish_reason_raw",
        "is_over",
        "more",
        "opaque",
        "paused",
        "reasonings",
        "refusals",
        "repeated",
        "texts",
        "tool_parts",
        "usage",
    )

    def __init__(self, kept: Sequence[str] = ()) -> None:
        """`kept` are the pieces of an earlier attempt that this one goes on from."""
        self.texts: list[str] = list(kept)
        """None of them empty."""
        self._measured = self._length = 0
        self.reasonings: list[str] = []
        self.refusals: list[str] = []
        self.tool_parts = ToolCallParts()
        self.finish_reason: str | None = None
        self.finish_reason_raw: str | None = None
        self.opaque: tuple[OpaqueBlock, ...] = ()
        """What the provider wants back of the answer, in order."""
        self.paused = False
        """Whether the provider interrupted the answer, and would go on with it."""
        self._paused_at = 0
        self._too_much = False
        """Whether there was more that the provider wants back than is kept."""
        self._begin_call()

    def _begin_call(self) -> None:
        """What follows is of another model call, whose tokens are counted for themselves."""
        self._kept, self._thought = len(self.texts), len(self.reasonings)
        self._reported_at: int | None = None
        """Pieces of text at the last report; None where some of them were held back."""
        self.usage: UsageReport | None = None
        """The last report of this call."""
        self.more = False
        """Whether something else than a plain token was said after that report."""
        self.is_over = False
        """Whether the wire has said that all is there."""
        self.repeated = 0
        """Code points of the answer that were left out, since they repeated what it goes on from."""

    @property
    def text(self) -> str:
        """The visible answer."""
        return "".join(self.texts)

    @property
    def length(self) -> int:
        """Code points of `text`; each piece is measured once."""
        if self._measured < len(self.texts):
            self._length += sum(map(len, self.texts[self._measured :]))
            self._measured = len(self.texts)
        return self._length

    def cut(self, at: int) -> None:
        """Leave the first `at` pieces."""
        del self.texts[at:]
        self._measured = self._length = 0

    def finish(self, reason: FinishReason) -> None:
        """Note why the model stopped; a word that is not known never hides one that is."""
        if reason.reason is not None or self.finish_reason is None:
            self.paused = reason.reason == "paused"
            # Unless it goes on, the answer is cut.
            self.finish_reason = "length" if self.paused else reason.reason
            self.finish_reason_raw = storable(reason.raw[:_WORD])

    def carry(self, blocks: Sequence[OpaqueBlock]) -> None:
        """Take what the provider wants back of what came since the last pause; too much of it is not kept."""
        self.opaque += tuple(block.moved(self._paused_at) for block in blocks)
        if self.opaque and sum(len(block.json) for block in self.opaque) > MAX_BYTES:
            self.opaque, self._too_much = (), True

    @property
    def may_go_on(self) -> bool:
        """Whether the provider interrupted the answer and can be given all of it back.

        It cannot where calls wait for results that only we can give.
        """
        said = self.texts or self.opaque
        return self.paused and bool(said) and not (self.tool_parts or self.refusals or self._too_much)

    def go_on(self) -> None:
        """The answer was interrupted and is about to go on; what was said stands."""
        self._paused_at = self.length
        self.paused, self.finish_reason, self.finish_reason_raw = False, None, None
        self._begin_call()

    def report(self, usage: UsageReport, *, held: bool) -> None:
        """Note token counts; `held` says whether text is held back that is no part of the draft yet."""
        self.usage, self.more = usage, False
        self._reported_at = None if held else len(self.texts)

    @property
    def is_counted(self) -> bool:
        """Whether the last report counts all that the call gave."""
        if self.usage is None or self.more or not (self.is_over or self.finish_reason_raw is not None):
            return False
        return self._reported_at is None or self._reported_at == len(self.texts)

    @property
    def heard(self) -> int:
        """Code points that were said in this call, without those that are held back."""
        pieces = (*self.texts[self._kept :], *self.reasonings[self._thought :], *self.refusals)
        return sum(map(len, pieces)) + self.tool_parts.length + self.repeated

    def conclude(self, *, end_mark: bool, new_id: Callable[[], str]) -> list[ToolCall] | Failure:
        """Judge the draft as a whole answer: its tool calls, or why it is none.

        `end_mark` says whether the wire's own sign of completeness was seen; `new_id` names calls that came
        without an id.
        """
        if not end_mark and self.finish_reason_raw is None:
            return Failure(faults.TRUNCATED, "the answer ended before it was complete")
        refusal = storable("".join(self.refusals))
        if refusal.strip() or self.finish_reason == "refusal":
            return Failure(faults.REFUSAL, "the model refused", detail={"refusal": refusal})
        calls, bad = self.tool_parts.joined(new_id)
        cut = _CUT_SHORT.get(self.finish_reason or "")
        if cut is not None and not calls and not self.text.strip():
            return Failure(cut[0], cut[1])
        if bad is not None:
            detail = {"index": bad.index, "function": bad.name, "arguments": storable(bad.raw[:_PREVIEW])}
            return Failure(faults.TOOL_ARGUMENTS, str(bad), detail=detail)
        return calls

    def is_empty(self) -> bool:
        """Whether the text is nothing, blank, or one character over and over."""
        text = self.text.strip()
        return not text or (len(text) in _REPETITION and text == text[0] * len(text))


_REPETITION = range(10, 100_001)
"""How often one character alone is no content. More is a runaway answer: to ask again costs as much again."""

_WORD = 200
"""How much of a reason to stop is kept, in code points."""

_PREVIEW = 1_000
"""How much of bad arguments an error shows, in code points."""

_CUT_SHORT: dict[str, tuple[Trouble, str]] = {
    "length": (faults.OUTPUT_TRUNCATED, "the token limit was reached before anything usable was said"),
    "content_filter": (faults.CONTENT_FILTER, "the provider's content filter left nothing usable"),
}
