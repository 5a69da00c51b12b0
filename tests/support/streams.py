"""Whole recorded answers and their small twins, with what an independent reader found in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import DATA, SHARED

_MESSAGES = "anthropic-messages"

REASONS = {"end_turn": "stop", "tool_use": "tool_calls", "pause_turn": "length"}
"""How an answer ends that ends so; a pause is an end where no further model call is allowed."""


@dataclass(frozen=True)
class Stream:
    """A body and what it says."""

    file: Path
    says: dict[str, Any]
    """Only what was found; texts as such or as a digest."""
    provider: str = "openai"
    """Whose wire it is."""

    @property
    def body(self) -> bytes:
        """All its bytes."""
        return self.file.read_bytes()


def own() -> Iterable[Stream]:
    """Those that lie in this repository."""
    for entry in json.loads((DATA / "streams" / "index.json").read_text("utf-8")):
        yield Stream(DATA / "streams" / entry["file"], entry["says"])


def recorded() -> Iterable[Stream]:
    """Those of this wire that lie beside the checkout; none where nothing does."""
    folder = SHARED / "cases" / "recorded"
    if not folder.is_dir():
        return
    for entry in json.loads((folder / "index.json").read_text("utf-8")):
        if entry["wire"] == "openai-chat-completions":
            found = entry["decoded"]
            says = {key: found[key] for key in ("text_sha256", "text_chars", "finish", "error_code")}
            # The reader that made the index does not look into reasoning_details.
            says |= {"reasoning_chars": found["reasoning_chars"]} if found["reasoning_chars"] else {}
            says |= {"end_mark": found["terminal_marker"]} if found["error_code"] is None else {}
            says["tool_calls"] = [[None, call["name"], call["arguments"]] for call in found["tool_calls"]]
            yield Stream(folder / entry["file"], says)


def on_messages() -> Iterable[Stream]:
    """Those on the wire of Anthropic's Messages, our own and those beside the checkout."""
    beside = SHARED / "cases" / "recorded"
    for folder in (DATA / "messages", beside):
        index = folder / "index.json"
        for entry in json.loads(index.read_text("utf-8")) if index.is_file() else ():
            if entry.get("wire", _MESSAGES) == _MESSAGES:
                yield Stream(folder / entry["file"], _in_our_words(entry["decoded"]), "anthropic")


def _in_our_words(found: Mapping[str, Any]) -> dict[str, Any]:
    says = {key: found[key] for key in ("text_sha256", "text_chars", "reasoning_chars")}
    says["finish"], says["end_mark"] = REASONS[found["finish"]], True
    says["tool_calls"] = [[None, call["name"], call["arguments"]] for call in found["tool_calls"]]
    return says


STREAMS = [*own(), *recorded()]
"""All of the chat completions wire."""


def smallest(count: int) -> list[Stream]:
    """The shortest recorded ones, or the shortest twins where there are none."""
    return sorted(list(recorded()) or list(own()), key=lambda stream: len(stream.body))[:count]
