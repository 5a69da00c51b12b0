"""The process that stops the embedded database when the one that started it dies, however it dies.

Run as `python -m app.adapters.embedded.watchdog <root>` with a pipe from that process as standard input: the
pipe ends with its writer. It imports little, because it stays for as long as the other.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from app.adapters.embedded.errors import PostgresFailed
from app.adapters.embedded.layout import Layout
from app.adapters.embedded.locks import FileLock

_MODULE = "app.adapters.embedded.watchdog"
_IMPORT_ROOT = Path(__file__).resolve().parents[3]
_READY = b"!"
_LOCK_S = 600.0
_DYING_S = 10.0
_POLL_S = 0.02


class Watchdog:
    """The watchdog of the calling process over the database in one root."""

    def __init__(self, root: Path, log: Path) -> None:
        """Start it, in a session of its own: a signal to the caller's process group leaves it alone.

        From here on it acts when the caller dies; `check` says whether it came up. It complains in `log`.
        """
        self._watches = False
        with log.open("ab") as complaints:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-m", _MODULE, str(root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
                cwd="/",
                env={"PYTHONPATH": str(_IMPORT_ROOT), "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
            )

    def lives(self) -> bool:
        """Whether it still watches."""
        return self._process.poll() is None

    def check(self) -> None:
        """Wait until it watches; raises PostgresFailed if it cannot."""
        assert self._process.stdout is not None
        self._watches = self._watches or self._process.stdout.read(len(_READY)) == _READY
        if not self._watches:
            raise PostgresFailed("The process that would stop the database after a crash did not start.")

    def call_off(self) -> None:
        """End it without any effect on the database."""
        self._process.kill()
        self._process.communicate()


def watch(root: Path) -> None:
    """Wait for the end of standard input, then stop the server unless somebody else uses it."""
    os.write(sys.stdout.fileno(), _READY)
    os.read(sys.stdin.fileno(), 1)
    # A process that dies closes its files one by one: the pipe may end a moment before its lock is free. A
    # lock that stays taken is that of another user, who has a watchdog too.
    end = time.monotonic() + _DYING_S
    with contextlib.suppress(FileNotFoundError):  # somebody has removed the database
        while not _stop_unused(Layout(root)) and time.monotonic() < end:
            time.sleep(_POLL_S)


def _stop_unused(layout: Layout) -> bool:
    """Stop the server; False if somebody uses it."""
    with (
        FileLock(layout.start_lock, create=False) as start,
        FileLock(layout.users_lock, create=False) as users,
    ):
        if not start.exclusive(_LOCK_S) or not users.try_exclusive():
            return False
        layout.server().halt()
        layout.remove_shelter()
        return True


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
