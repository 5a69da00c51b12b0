"""The process that ends commands when the service that started them dies, however it dies.

Run as `python -m app.adapters.command_model.watchdog` with a pipe from the service as standard input: a line
`+<id>` names a process group to be ended, `-<id>` one that has ended, and the pipe ends with its writer. It
imports little, because it stays for as long as the service.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_MODULE: Final = "app.adapters.command_model.watchdog"
_IMPORT_ROOT: Final = Path(__file__).resolve().parents[3]
_GRACE_S: Final = 1.0
_POLL_S: Final = 0.02


class Watchdog:
    """The watchdog of the calling process over the commands that it runs."""

    def __init__(self) -> None:
        """Nothing is started before there is something to watch."""
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def watch(self, group: int) -> None:
        """End this process group if the calling process dies."""
        self._groups.add(group)
        if self._process is None or self._process.poll() is not None:
            self._start()
        else:
            self._say(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The group has ended, and its number may come to stand for another one."""
        self._groups.discard(group)
        self._say(f"-{group}\n")

    def close(self) -> None:
        """Let it end; what it still watches it ends first."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _start(self) -> None:
        """In a session of its own: a signal to the caller's process group leaves it alone."""
        self.close()
        # Where it cannot be started, the next command tries again.
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={"PYTHONPATH": str(_IMPORT_ROOT), "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        if self._process is None or self._process.stdin is None:
            return
        # A watchdog that hangs must not hang the service.
        os.set_blocking(self._process.stdin.fileno(), False)
        self._say("".join(f"+{group}\n" for group in self._groups))

    def _say(self, words: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, BlockingIOError):
                os.write(self._process.stdin.fileno(), words.encode())


def watch() -> None:
    """Wait for the end of standard input, then end the groups that were named and not called off."""
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        (groups.add if line.startswith(b"+") else groups.discard)(int(line[1:]))
    for number in (signal.SIGTERM, signal.SIGKILL):
        groups = set(_told(groups, number))
        end = time.monotonic() + _GRACE_S
        while groups and time.monotonic() < end:
            time.sleep(_POLL_S)
            groups = set(_told(groups, 0))


def _told(groups: Iterable[int], number: int) -> Iterable[int]:
    """Signal them; those that there are."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            yield group


if __name__ == "__main__":
    watch()
