"""Whole recorded answers and their small twins, with what an independent reader found in them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import DATA, SHARED


@dataclass(frozen=True)
class Stream:
    """A body and what it says."""

    file: Path
    says: dict[str, Any]
    """Only what was found; texts as such or as a digest."""

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


STREAMS = [*own(), *recorded()]
"""All of them."""


def smallest(count: int) -> list[Stream]:
    """The shortest recorded ones, or the shortest twins where there are none."""
    return sorted(list(recorded()) or list(own()), key=lambda stream: len(stream.body))[:count]
