"""The callbacks that fire after an event: those stored with it, and those that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, get_args

from app.core.json_text import dumps, joined, read

if TYPE_CHECKING:
    from app.core.record import Entry, Reader

CallbackName = Literal[
    "on_start",
    "on_complete",
    "on_error",
    "on_event",
    "on_violation",
    "on_retry",
    "on_fallback",
    "on_resume",
    "on_checkpoint",
    "on_timeout",
    "on_abort",
    "on_drift",
    "on_tool_call",
    "on_token",
]
CALLBACKS: Final[tuple[CallbackName, ...]] = get_args(CallbackName)
"""All of them."""
DERIVED: Final = ("on_event", "on_token")
"""Those that follow from what is stored anyway, and are made when somebody reads them."""
STORED: Final = tuple(name for name in CALLBACKS if name not in DERIVED)
"""Those that are stored with the event that they follow."""

_MAX_DEPTH = 1_000
"""Beyond that of any arguments: what is stored was checked when it came."""

ON_EVENT: Mapping[str, str] = {"on_token": "token", "on_tool_call": "tool_call", "on_complete": "complete"}
"""After which callbacks on_event fires, and the `type` of what it is given."""


def after_token(text: str) -> list[tuple[str, str]]:
    """Name and arguments of each callback after a TOKEN; `text` and the arguments are JSON texts."""
    return [("on_token", f"[{text}]"), ("on_event", f'[{{"type":"token","text":{text}}}]')]


def after_event(meta: str, stored: str | None) -> list[tuple[str, str]]:
    """Name and arguments of each callback after any other event; `meta` and `stored` are JSON texts."""
    fired: list[tuple[str, str]] = []
    if stored is None:
        return fired
    for callback in read(stored, max_depth=_MAX_DEPTH, unique_keys=False):
        name = callback["name"]
        fired.append((name, dumps(callback["args"]).decode()))
        if name in ON_EVENT:
            given = joined(f'{{"type":"{ON_EVENT[name]}"}}', meta)
            fired.append(("on_event", f"[{given}]"))
    return fired


def callbacks(
    reader: Reader, entries: Iterable[Entry], *, derived: bool = True
) -> Iterator[tuple[int, str, str]]:
    """(seq, name, JSON text) of every callback, in order; `derived` adds those that are not stored.

    `entries` continue what the reader has read before.
    """
    for seq, name, text, _ in reader.callbacks(entries):
        if derived or name not in DERIVED:
            yield seq, name, text
