"""What the replicas logged that tells of a bug."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson

EXPLAINED = frozenset({"run not taken over again"})
"""Errors that enough kills lead to."""


class LogTail:
    """Reads on in one log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def bugs(self) -> Iterator[str]:
        """The lines since the last look that are of a fault which nothing that befalls a process explains."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            whole, _, rest = log.read().rpartition(b"\n")
            self._read = log.tell() - len(rest)
        for line in whole.splitlines():
            if line and (told := _bug(line)) is not None:
                yield f"{self._path.stem} logged {told}"


def _bug(line: bytes) -> str | None:
    try:
        told = orjson.loads(line)
    except orjson.JSONDecodeError:
        return "what it should have logged as JSON" if line.startswith(b"Traceback") else None
    explained = told["event"] in EXPLAINED or "LeaseLost" in told.get("why", "")
    return None if told["level"] != "error" or explained else line.decode(errors="replace")[:3000]
