"""A Postgres of Branchline's own: started on first need, shared by its users, ended with the last of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from app.adapters.embedded.account import account_for
from app.adapters.embedded.binaries import Binaries, discover
from app.adapters.embedded.errors import PostgresFailed, PostgresUnusable
from app.adapters.embedded.initdb import USER
from app.adapters.embedded.launch import RECOVERY_S, Launch, Say
from app.adapters.embedded.layout import Layout
from app.adapters.embedded.locks import FileLock
from app.adapters.embedded.server import Answer
from app.adapters.embedded.watchdog import Watchdog

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "max_connections": "60",
    # Statements are short: compiling them or spreading them over processes costs more than it saves.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    # The service reports its failing statements itself. Without them and without notes on checkpoints the
    # log holds no data of users and grows by starts, stops and accidents only.
    "log_min_messages": "log",
    "log_checkpoints": "off",
}
"""Server settings that differ from Postgres's own. Those of durability do not."""

_LOCK_S = 120.0
_POLL_S = 0.01


class EmbeddedPostgres:
    """The Postgres of one directory, for one process that uses it.

    Several processes may use one directory: the first starts the server, the last to stop ends it. A
    process that is killed counts as stopped, and the server ends although nobody told it.
    """

    def __init__(
        self,
        root: Path,
        *,
        settings: Mapping[str, str] | None = None,
        initdb_options: Sequence[str] = (),
        installed: Callable[[], Iterable[Binaries]] = discover,
        silence_s: float = 15.0,
        say: Say = lambda _: None,
    ) -> None:
        """`root` holds the database and may hold other files; `say` is told of steps that take a while.

        `settings` are laid over SETTINGS and take effect when this process is the one that starts the server;
        `installed` gives the binaries to choose from, in order of preference. A server that was there before
        and says nothing for `silence_s` seconds is taken to hang.
        """
        self._layout = Layout(root.absolute())
        self._launch = Launch(self._layout, installed, {**SETTINGS, **(settings or {})}, initdb_options, say)
        self._silence_s = silence_s
        self._say = say
        self._threads = threading.RLock()
        self._users: FileLock | None = None
        self._watchdog: Watchdog | None = None

    def start(self) -> None:
        """Return when the server accepts connections; raises EmbeddedError with advice for the operator."""
        with self._threads:
            self._make_root()
            try:
                with self._alone() as start_lock:
                    watchdog = self._become_user()
                    if not self._serves():
                        self._launch(start_lock)
                    watchdog.check()
            except BaseException:
                self.stop()
                raise

    def revive(self) -> None:
        """Bring back a server that died; without effect before start() and after stop()."""
        with self._threads:
            if self._users is not None:
                self.start()

    def stop(self) -> None:
        """Give up the server, and end it if nobody else uses it; without effect when not started."""
        with self._threads:
            try:
                if self._users is not None:
                    self._leave()
            finally:
                self._call_off_watchdog()

    def is_ready(self) -> bool:
        """Whether the server answers now; takes milliseconds, at most 2 s."""
        return self._layout.server().answer() is Answer.READY

    @property
    def url(self) -> str:
        """Where to connect: `postgresql://user:password@/database?host=<folder of the socket>`."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """The same for another database of the server."""
        password = self._layout.password.read_text()
        return f"postgresql://{USER}:{password}@/{quote(database)}?host={quote(str(self._layout.sockets))}"

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._layout.log

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make_root(self) -> None:
        root, account = self._layout.root, account_for(self._layout.data)
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                root.mkdir(mode=0o700)
                root.chmod(account.folder_mode)
            FileLock(self._layout.start_lock).close()
        except PermissionError as error:
            raise PostgresUnusable(
                f"The database directory {root} cannot be used by this account. Run as the account that made "
                "it, or choose another BRANCHLINE_DATA_DIR."
            ) from error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[FileLock]:
        """Nobody else starts or stops the server meanwhile."""
        with FileLock(self._layout.start_lock) as lock:
            busy = "Waiting for another process that starts or stops the database"
            if not lock.exclusive(_LOCK_S, lambda: self._say(busy)):
                raise PostgresFailed(f"Another process has held {lock.path} for {_LOCK_S:.0f} s.")
            yield lock

    def _become_user(self) -> Watchdog:
        """Count as a user, with a watchdog first: from here on this process may be killed at any point."""
        watchdog = self._watchdog
        if watchdog is None or not watchdog.lives():
            self._call_off_watchdog()
            watchdog = self._watchdog = Watchdog(self._layout.root, self._layout.log)
        if self._users is None:
            self._users = FileLock(self._layout.users_lock)
            self._users.share()
        return watchdog

    def _serves(self) -> bool:
        """Whether there is a server to use; waits for one that starts or recovers, ends one that hangs."""
        server = self._layout.server()
        started = heard = time.monotonic()
        while server.runs():
            answer, now = server.answer(), time.monotonic()
            if answer is Answer.READY:
                return True
            if answer is Answer.STARTING and now - started < RECOVERY_S:
                heard = now
            if now - heard > self._silence_s:
                self._say("The database does not answer: restarting it")
                self._halt(hangs=True)
            time.sleep(_POLL_S)
        return False

    def _leave(self) -> None:
        users = self._users
        assert users is not None
        with self._alone():
            try:
                users.unlock()
                if users.try_exclusive():
                    self._halt()
                    self._layout.remove_shelter()
            finally:
                users.close()
                self._users = None

    def _halt(self, *, hangs: bool = False) -> None:
        if not self._layout.server().halt(hangs=hangs):
            raise PostgresFailed(
                f"The database in {self._layout.root} does not stop; see {self._layout.log}."
            )

    def _call_off_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.call_off()
            self._watchdog = None
