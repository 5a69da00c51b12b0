"""A Postgres server seen from outside: whether it runs, whether it answers, and how to end it.

Nothing here trusts a process id alone. That the server runs is shown by a lock that it inherits and
holds until its last process is gone; that it works, by its answer to a start-up packet.
"""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from app.adapters.embedded.errors import PostgresUnusable
from app.adapters.embedded.locks import FileLock

SOCKET = ".s.PGSQL.5432"
_POLL_S = 0.01
_PROTOCOL_3 = 196608
_STARTUP = _PROTOCOL_3.to_bytes(4, "big") + b"user\0branchline\0database\0postgres\0\0"
_CANNOT_CONNECT_NOW = b"C57P03\0"
_FAST = ((signal.SIGINT, 30.0),)
_FORCED = ((signal.SIGQUIT, 3.0), (signal.SIGKILL, 10.0))
"""Signals, each with the seconds that it is given. A forced end costs a recovery at the next start."""


class Answer(enum.Enum):
    """What a server says to a start-up packet."""

    READY = enum.auto()
    STARTING = enum.auto()
    SILENT = enum.auto()


@dataclass(frozen=True, slots=True)
class Server:
    """The server of one data directory, whichever process started it."""

    data: Path
    sockets: Path
    lock: Path
    """The file whose lock the server holds as long as one of its processes lives."""

    def runs(self) -> bool:
        """Whether any process of the server is left; a zombie does not count."""
        try:
            with FileLock(self.lock, create=False) as lock:
                return not lock.try_exclusive()
        except FileNotFoundError:
            return False

    def answer(self) -> Answer:
        """Knock at the socket. A server that refuses for want of free connections is ready all the same."""
        packet = (len(_STARTUP) + 4).to_bytes(4, "big") + _STARTUP
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2)
            client.connect(str(self.sockets / SOCKET))
            client.sendall(packet)
            reply = client.recv(1024)
            if reply.startswith(b"E") and _CANNOT_CONNECT_NOW in reply:
                return Answer.STARTING
            return Answer.READY if reply else Answer.SILENT
        return Answer.SILENT

    def pid(self) -> int | None:
        """The postmaster's process id, None when there is none or another process has that id now."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None
        return pid if _works_in(pid, self.data) else None

    def clear_remains(self) -> None:
        """Remove what a killed server left behind, so that its process id, used anew, does not block a start.

        Call it while holding the server's lock. Raises PostgresUnusable if a server that somebody started
        by hand uses the data directory.
        """
        pid = self.pid()
        if pid is not None:
            raise PostgresUnusable(
                f"Another Postgres (process {pid}) runs on {self.data} and was not started by Branchline; "
                "stop it first."
            )
        for remains in (self.data / "postmaster.pid", self.sockets / SOCKET, self.sockets / f"{SOCKET}.lock"):
            remains.unlink(missing_ok=True)

    def halt(self, *, hangs: bool = False) -> bool:
        """End the server, by force if it `hangs` or takes too long; False if something of it is left."""
        for number, patience_s in _FORCED if hangs else _FAST + _FORCED:
            end, told = time.monotonic() + patience_s, False
            while self.runs():
                if time.monotonic() > end:
                    break
                pid = None if told else self.pid()
                if pid is not None:  # just forked, a server has not yet written its id: ask again
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                    told = True
                time.sleep(_POLL_S)
            else:
                return True
        return False


def _works_in(pid: int, data: Path) -> bool:
    """Whether the process is a live postmaster of `data`: it makes the data directory its own."""
    if sys.platform == "linux":
        try:
            return os.path.samefile(f"/proc/{pid}/cwd", data)
        except OSError:  # gone, a zombie, or another user's
            return False
    listed = subprocess.run(["ps", "-o", "stat=,comm=", "-p", str(pid)], capture_output=True, text=True)
    status, _, command = listed.stdout.strip().partition(" ")
    return "postgres" in command and not status.startswith("Z")
