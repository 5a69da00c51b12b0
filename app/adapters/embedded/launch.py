"""Bringing a server up on a data directory that nobody serves."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.adapters.embedded.account import Account, account_for
from app.adapters.embedded.binaries import Binaries, choose
from app.adapters.embedded.errors import PostgresFailed
from app.adapters.embedded.initdb import ENVIRONMENT, init_data
from app.adapters.embedded.layout import Layout
from app.adapters.embedded.locks import FileLock
from app.adapters.embedded.server import Answer

Say = Callable[[str], None]

RECOVERY_S = 600.0
"""How long a server may say that it is starting: after a crash it reads its log."""

_REMAINS_S = 15.0
_READY_S = 60.0
_POLL_S = 0.01
_LONG_POLL_S = 0.2
"""Each knock is a line in the log of a server that still recovers."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to bring a server up."""

    layout: Layout
    installed: Callable[[], Iterable[Binaries]]
    settings: Mapping[str, str]
    initdb_options: Sequence[str]
    say: Say

    def __call__(self, start_lock: FileLock) -> None:
        """Return when the server answers; the caller holds the start lock."""
        layout = self.layout
        account = account_for(layout.data)
        layout.make_sockets(account)
        binaries = self._binaries(account)
        if layout.major() is None:
            self.say(f"Initialising the database in {layout.root}")
            init_data(binaries, layout, account, [start_lock.fileno()], self.initdb_options)
        layout.rotate_log()
        with FileLock(layout.server_lock) as lock:
            if not lock.exclusive(_REMAINS_S):
                raise PostgresFailed(f"Processes of an earlier server still use {layout.data}.")
            layout.server().clear_remains()
            begin = layout.log.stat().st_size if layout.log.exists() else 0
            self._detach(binaries, account, lock)
        self._await_ready(begin)

    def _binaries(self, account: Account) -> Binaries:
        layout = self.layout
        chosen = choose(self.installed(), layout.major(), layout.data)
        if account.can_run(chosen.bin / "postgres", "-V"):
            return chosen
        self.say(f"Copying Postgres {chosen.version} to where the account that runs it can reach it")
        return chosen.copied_into(layout.shelter or layout.root)

    def _detach(self, binaries: Binaries, account: Account, lock: FileLock) -> None:
        """Start the server as nobody's child: it may outlive this process, which then could not reap it."""
        settings = {
            **self.settings,
            "unix_socket_directories": str(self.layout.sockets),
            "unix_socket_permissions": "0777" if account.other else "0700",
        }
        with self.layout.log.open("ab") as log:
            subprocess.run(
                [
                    *("/bin/sh", "-c", '"$0" "$@" &', binaries.bin / "postgres"),
                    *("-D", account.name_for(self.layout.data)),
                    *(f"--{name}={value}" for name, value in settings.items()),
                ],
                cwd=self.layout.data,
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(lock.fileno(),),
                check=True,
                **account.credentials,
            )

    def _await_ready(self, begin: int) -> None:
        """Wait until the new server answers; `begin` is where its part of the log starts."""
        server, started, told = self.layout.server(), time.monotonic(), False
        while (answer := server.answer()) is not Answer.READY:
            waited = time.monotonic() - started
            if not server.runs():
                raise PostgresFailed(f"The database did not start: {self._log_since(begin)}")
            if waited > (RECOVERY_S if answer is Answer.STARTING else _READY_S):
                raise PostgresFailed(
                    f"The database is not ready after {waited:.0f} s: {self._log_since(begin)}"
                )
            if waited > 1 and not told:
                self.say("Waiting for the database to be ready")
                told = True
            time.sleep(_POLL_S if waited < 1 else _LONG_POLL_S)

    def _log_since(self, begin: int) -> str:
        return self.layout.log.read_bytes()[begin:].decode(errors="replace").strip()[-600:]
