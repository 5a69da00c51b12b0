"""Where the embedded database keeps its files."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from app.adapters.embedded.account import Account
from app.adapters.embedded.server import SOCKET, Server

_LONGEST_SOCKET = 107 if sys.platform == "linux" else 103
"""Bytes that the system allows in the path of a socket."""
_LOG_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below `root`. Files of other makers may lie beside them and are left alone."""

    root: Path

    @property
    def data(self) -> Path:
        """Postgres's own data directory."""
        return self.root / "pgdata"

    @property
    def unfinished(self) -> Path:
        """The data directory while it is being made."""
        return self.root / "pgdata.init"

    @property
    def password(self) -> Path:
        """The password of the one database user, readable by the service's account only."""
        return self.root / "password"

    @property
    def log(self) -> Path:
        """What the server says; the file before it is `postgres.log.1`."""
        return self.root / "postgres.log"

    @property
    def start_lock(self) -> Path:
        """Held by whoever starts or stops the server."""
        return self.root / "start.lock"

    @property
    def users_lock(self) -> Path:
        """Shared by every process that uses the server."""
        return self.root / "users.lock"

    @property
    def server_lock(self) -> Path:
        """Held by the server itself."""
        return self.root / "server.lock"

    @property
    def sockets(self) -> Path:
        """The folder of the server's socket."""
        return (self.shelter or self.root) / "sock"

    @property
    def shelter(self) -> Path | None:
        """The folder outside root for what cannot work inside it, None when all of it can."""
        with contextlib.suppress(FileNotFoundError):
            return Path(os.fsdecode(self._shelter_note.read_bytes()))
        return None

    @property
    def _shelter_note(self) -> Path:
        return self.root / "shelter"

    def server(self) -> Server:
        """The server of this data directory, running or not."""
        return Server(self.data, self.sockets, self.server_lock)

    def major(self) -> int | None:
        """The Postgres version that made the data directory, None before there is one."""
        try:
            return int((self.data / "PG_VERSION").read_text().strip())
        except FileNotFoundError:
            return None

    def make_sockets(self, account: Account) -> None:
        """Make the folder of the socket, and a shelter for it when root will not do.

        Root will not do when its path is too long for a socket, or when `account` cannot enter it. Call it
        while no server runs.
        """
        if self.shelter and not _is_ours(self.shelter):
            self._shelter_note.unlink()
        fits = len(os.fsencode(self.sockets / SOCKET)) <= _LONGEST_SOCKET
        if not self.shelter and not (fits and account.reaches(self.root)):
            shelter = Path(tempfile.mkdtemp(prefix="branchline-"))
            shelter.chmod(account.folder_mode)
            write_private(self._shelter_note, os.fsencode(shelter))
        self.sockets.mkdir(exist_ok=True)
        account.own(self.sockets)
        self.sockets.chmod(account.folder_mode)

    def remove_shelter(self) -> None:
        """Leave nothing outside root; call it while no server runs."""
        if self.shelter:
            if _is_ours(self.shelter):
                shutil.rmtree(self.shelter, ignore_errors=True)
            self._shelter_note.unlink()

    def make_password(self) -> None:
        """Choose the password, unless there is one."""
        if not self.password.exists():
            write_private(self.password, os.urandom(32).hex().encode())

    def rotate_log(self) -> None:
        """Put a log that has grown large aside, so that two files of bounded size are kept."""
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_LIMIT:
                self.log.replace(self.log.with_name("postgres.log.1"))


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read; whole and on disk, or not at all."""
    partial = path.with_name(f".{path.name}.new")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_ours(folder: Path) -> bool:
    """Whether it is still the folder made here: in the system's temporary folder anybody may write."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
