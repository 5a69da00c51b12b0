"""Read the output of a command, in whatever pieces it comes: one JSON object a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import orjson

from app.adapters.command_model.command import Command
from app.adapters.command_model.profiles import Line, translated
from app.adapters.lenient_json import lenient_loads
from app.adapters.model_faults import bounded, error_object_fault, malformed
from app.adapters.surrogates import Halves
from app.core import json_text
from app.core.chunks import (
    Chunk,
    EndMark,
    FinishReason,
    KeepAlive,
    MessageBreak,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolOutcome,
    ToolUse,
    UsageReport,
)
from app.core.faults import Fault, FaultKind, ProviderError
from app.core.masking import Mask

OBSERVED_CHARS: Final = 8_000
"""How much is kept of the arguments and of the outcome of a tool that the command used."""
NAME_CHARS: Final = 200

REASONS: Final = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "refusal",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}
"""What commands call the reasons to stop."""

_COUNTS: Final = (
    *("input_tokens", "output_tokens"),
    *("cached_input_tokens", "cache_write_tokens", "reasoning_tokens"),
)
_FAILED: Final = frozenset({"failed", "declined", "error"})
_MARK: Final = b"\xef\xbb\xbf"


class OutputReader:
    """Turns the bytes of one command's output into chunks.

    After each call look at `fault`, which follows on the chunks that were returned, and at `over`.
    """

    def __init__(self, command: Command) -> None:
        self._settings = command.settings
        self._mask = Mask(command.secrets)
        self._rest: list[bytes] = []
        """The line that is not complete."""
        self._rest_bytes = 0
        self._calls = 0
        self._halves: Halves | None = None
        """Set once a line was read that may hold half a character."""
        self.fault: Fault | None = None
        self.complaint: Fault | None = None
        """What went wrong, as the command says, but need not be the end of it."""
        self.over = False
        """Whether nothing more is to be read: the end mark came, or there is a fault."""
        self.complete = False
        """Whether the end mark came."""
        self.is_answer = False
        """Whether a line was understood that is no error."""
        self._kinds: dict[str, Callable[[Line, list[Chunk]], None]] = {
            "text": self._text,
            "reasoning": self._reasoning,
            "refusal": self._refusal,
            "message": lambda line, out: out.append(MessageBreak()),
            "tool_use": self._tool_use,
            "tool_result": self._tool_result,
            "tool_call": self._tool_call,
            "usage": self._usage,
            "complaint": self._complain,
            "error": self._error,
            "end": self._end,
        }

    def feed(self, piece: bytes) -> list[Chunk]:
        """What the piece says; a `KeepAlive` when that is nothing."""
        out: list[Chunk] = []
        try:
            *lines, rest = piece.split(b"\n")
            for line in lines:
                self._line(self._completed(line), out)
                if self.over:
                    return out
            self._keep(rest)
        except ProviderError as error:
            self._fail(error)
        return out or [KeepAlive()]

    def finish(self) -> list[Chunk]:
        """What is left at the end: a last line without its end counts if it is whole."""
        out: list[Chunk] = []
        try:
            last = self._completed(b"").strip()
            if last.startswith(b"{") and last.endswith(b"}"):
                self._line(last, out)
        except ProviderError as error:
            self._fail(error)
        self.over = True
        return out

    def _fail(self, error: ProviderError) -> None:
        self.fault = error.fault
        self.over = True

    def _keep(self, rest: bytes) -> None:
        self._rest_bytes += len(rest)
        if self._rest_bytes > self._settings.max_line_bytes:
            most = self._settings.max_line_bytes
            raise ProviderError(malformed(f"a line is longer than {most} bytes", type="too_large"))
        if rest:
            self._rest.append(rest)

    def _completed(self, end: bytes) -> bytes:
        self._keep(end)
        line = b"".join(self._rest) if len(self._rest) > 1 else (self._rest or [b""])[0]
        self._rest.clear()
        self._rest_bytes = 0
        return line

    def _line(self, raw: bytes, out: list[Chunk]) -> None:
        raw = raw.removeprefix(_MARK).strip()
        if not raw:
            return
        try:
            said = self._parsed(raw)
        except ValueError:
            said = None
        if type(said) is not dict:
            if self._settings.skip_stray_lines:
                return
            seen = self._mask.whole(raw.decode("utf-8", "replace")).encode("utf-8", "replace")
            raise ProviderError(malformed("a line of the command's output is no JSON object", seen))
        for line in translated(self._settings.format, said):
            if (reads := self._kinds.get(str(line.get("type")))) is not None:
                reads(line, out)
            if self.over:
                return
        self.is_answer = True

    def _parsed(self, raw: bytes) -> Any:
        if b'"tool_call"' in raw:
            return lenient_loads(raw)  # the fast parser would round a long integer among the arguments
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            value = lenient_loads(raw)
            self._halves = self._halves or Halves()
            return value

    # What our own lines say

    def _text(self, line: Line, out: list[Chunk]) -> None:
        if text := self._whole("text", line):
            out.append(TextDelta(text))

    def _reasoning(self, line: Line, out: list[Chunk]) -> None:
        if text := self._whole("reasoning", line):
            out.append(ReasoningDelta(text))

    def _refusal(self, line: Line, out: list[Chunk]) -> None:
        if text := self._whole("refusal", line):
            out.append(RefusalDelta(text))

    def _whole(self, channel: str, line: Line) -> str:
        text = line.get("text")
        if type(text) is not str:
            return ""
        return text if self._halves is None else self._halves.whole(channel, text)

    def _tool_use(self, line: Line, out: list[Chunk]) -> None:
        id, name = self._name(line.get("id")), self._name(line.get("name"))
        out.append(ToolUse(id, name, self._observed(line.get("arguments"))))

    def _tool_result(self, line: Line, out: list[Chunk]) -> None:
        failed = line.get("is_error")
        is_error = failed is True or (type(failed) is str and failed in _FAILED)
        out.append(ToolOutcome(self._name(line.get("id")), self._observed(line.get("output")), is_error))

    def _name(self, value: Any) -> str:
        return str(bounded(self._masked(value), NAME_CHARS)) if type(value) is str else ""

    def _observed(self, value: Any) -> Any:
        return bounded(self._masked(value), OBSERVED_CHARS)

    def _masked(self, value: Any) -> Any:
        try:
            return self._mask.whole(value)
        except RecursionError:
            raise ProviderError(malformed("a line of the command's output is nested too deeply")) from None

    def _tool_call(self, line: Line, out: list[Chunk]) -> None:
        if not self._settings.native_tools:
            raise ProviderError(malformed("the command asks for a tool call, which `native_tools` allows"))
        out.append(ToolCallDelta(self._calls, _str(line.get("id")), _str(line.get("name")), _arguments(line)))
        self._calls += 1

    def _usage(self, line: Line, out: list[Chunk]) -> None:
        told = {name: count for name in _COUNTS if type(count := line.get(name)) is int and count >= 0}
        if told.keys() & {"input_tokens", "output_tokens"}:
            out.append(UsageReport(**{"input_tokens": 0, "output_tokens": 0, **told}))

    def _complain(self, line: Line, out: list[Chunk]) -> None:
        self.complaint = self._fault(line)

    def _error(self, line: Line, out: list[Chunk]) -> None:
        raise ProviderError(self._fault(line))

    def _fault(self, line: Line) -> Fault:
        said = {name: value for name, value in self._masked(dict(line)).items() if name != "type"}
        fault = error_object_fault(said)
        pause = said.get("retry_after_ms")
        return replace(
            fault,
            # Before the answer it is a refusal, as the status of an HTTP answer would be.
            kind=FaultKind.IN_STREAM if self.is_answer or fault.status is None else FaultKind.STATUS,
            retry_after_ms=pause if type(pause) is int and pause >= 0 else None,
        )

    def _end(self, line: Line, out: list[Chunk]) -> None:
        if reason := _str(line.get("reason")):
            out.append(FinishReason(REASONS.get(reason), self._name(reason)))
        out.append(EndMark())
        self.is_answer = self.over = self.complete = True


def _str(value: Any) -> str:
    return value if type(value) is str else ""


def _arguments(line: Line) -> str:
    """The JSON text of a call's arguments."""
    value = line.get("arguments")
    if value is None or type(value) is str:
        return value or ""
    try:
        return json_text.dumps(value).decode()
    except json_text.NotJson as error:
        raise ProviderError(malformed(f"the arguments of a tool call cannot be sent on: {error}")) from None
