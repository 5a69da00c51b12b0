"""The account that the embedded database runs as: Postgres refuses to run as root."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.adapters.embedded.errors import PostgresUnusable

_NOBODY = 65534
"""Used where the system has no account of that name."""


@dataclass(frozen=True, slots=True)
class Account:
    """Who owns the database's files and processes."""

    uid: int
    gid: int
    other: bool
    """Whether this is not the account of the calling process; only root can act for another."""

    @property
    def credentials(self) -> Mapping[str, Any]:
        """Arguments that make `subprocess` start a child as this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.other else {}

    @property
    def folder_mode(self) -> int:
        """Permissions of a folder that the caller and this account share with nobody else's eyes."""
        return 0o711 if self.other else 0o700

    def own(self, path: Path) -> None:
        """Give the path to this account."""
        if self.other:
            os.chown(path, self.uid, self.gid)

    def can_run(self, *command: str | Path) -> bool:
        """Whether this account can execute the command; it must be one that ends by itself."""
        try:
            done = subprocess.run(command, cwd="/", capture_output=True, **self.credentials)
        except OSError:
            return False
        return done.returncode == 0

    def reaches(self, folder: Path) -> bool:
        """Whether this account may pass through every folder down to `folder`."""
        return not self.other or self.can_run("/bin/sh", "-c", 'cd "$0"', folder)

    def name_for(self, folder: Path) -> str:
        """What a child of this account that works in `folder` may call it.

        A child can work in a folder below one that it may not enter, because its working directory is set
        before it gives up root; it then needs a name that does not lead through that folder.
        """
        if self.reaches(folder):
            return str(folder)
        if sys.platform == "linux":
            return "/proc/self/cwd"
        raise PostgresUnusable(
            f"The database cannot run as root, and user {self.uid}, which it would run as, cannot enter "
            f"{folder}. Choose another BRANCHLINE_DATA_DIR, or run as an ordinary user."
        )


def account_for(data: Path) -> Account:
    """The caller's own; for root the owner of the data directory, or `nobody` for a new one."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), other=False)
    if data.exists() and data.stat().st_uid != 0:
        return Account(data.stat().st_uid, data.stat().st_gid, other=True)
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        return Account(_NOBODY, _NOBODY, other=True)
    return Account(nobody.pw_uid, nobody.pw_gid, other=True)
