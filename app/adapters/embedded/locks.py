"""Locks between processes that the kernel releases when their holder dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

_POLL_S = 0.01


class FileLock:
    """An advisory lock on a file of its own; the file stays behind when the lock is released.

    The lock belongs to the open file, so a child that inherits `fileno()` holds it too, until both have
    closed it. That is how a server that outlives its parent still shows that it runs.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        """Open the file at `path`; when it is not there, make it, or raise FileNotFoundError."""
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._fd: int | None = os.open(path, flags, 0o600)

    def fileno(self) -> int:
        """The descriptor to hand to a child that shall hold the lock as well."""
        if self._fd is None:
            raise ValueError(f"{self.path} is closed")
        return self._fd

    def try_exclusive(self) -> bool:
        """Take the lock for this holder alone; False when anybody else holds it."""
        return self._try(fcntl.LOCK_EX)

    def exclusive(self, timeout_s: float, waiting: Callable[[], None] = lambda: None) -> bool:
        """Wait for the lock up to `timeout_s` seconds; `waiting` is called once if it is not free at once."""
        end = time.monotonic() + timeout_s
        if self.try_exclusive():
            return True
        waiting()
        while time.monotonic() < end:
            time.sleep(_POLL_S)
            if self.try_exclusive():
                return True
        return False

    def share(self) -> None:
        """Hold the lock beside other sharers; waits while somebody holds it alone."""
        fcntl.flock(self.fileno(), fcntl.LOCK_SH)

    def unlock(self) -> None:
        """Let go, for every process that shares this open file."""
        fcntl.flock(self.fileno(), fcntl.LOCK_UN)

    def close(self) -> None:
        """Close this holder's descriptor; the lock is let go when no child has it open any more."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _try(self, operation: int) -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self.fileno(), operation | fcntl.LOCK_NB)
            return True
        return False
