"""Making a new data directory, so that one cut off half-way is never taken for a finished one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from app.adapters.embedded.account import Account
from app.adapters.embedded.binaries import Binaries
from app.adapters.embedded.errors import PostgresFailed, PostgresUnusable
from app.adapters.embedded.layout import Layout, sync_folder

USER = "branchline"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "HOME": "/"}
"""What the database's processes see; the service's secrets are none of their business."""

_BUILTIN_LOCALES_SINCE = 17


def init_data(
    binaries: Binaries, layout: Layout, account: Account, held: Sequence[int], options: Sequence[str] = ()
) -> None:
    """Make `layout.data`: one superuser who logs in by password, UTF-8, text in the order of its code points.

    `held` are descriptors that the child keeps open: if this process is killed, the lock behind them holds
    off the next start until the orphan is done. `options` are further ones of initdb.
    """
    _refuse_other_contents(layout)
    layout.make_password()
    shutil.rmtree(layout.unfinished, ignore_errors=True)
    layout.unfinished.mkdir()
    account.own(layout.unfinished)
    layout.unfinished.chmod(0o700)
    password = _pipe_with(layout.password.read_bytes() + b"\n", account)
    try:
        made = subprocess.run(
            [
                binaries.bin / "initdb",
                *("--pgdata", account.name_for(layout.unfinished)),
                *("--username", USER, "--auth", "scram-sha-256", "--pwfile", f"/dev/fd/{password}"),
                *("--encoding", "UTF8", "--no-instructions", *_locale(binaries), *options),
            ],
            cwd=layout.unfinished,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            pass_fds=(password, *held),
            **account.credentials,
        )
    finally:
        os.close(password)
    if made.returncode != 0:
        raise PostgresFailed(f"initdb could not make {layout.data}: {made.stderr.strip()[-600:]}")
    layout.unfinished.rename(layout.data)
    sync_folder(layout.root)


def _refuse_other_contents(layout: Layout) -> None:
    if not layout.data.exists():
        return
    try:
        layout.data.rmdir()
    except OSError as error:
        raise PostgresUnusable(
            f"{layout.data} is not empty and is not a Postgres data directory; move it away."
        ) from error


def _locale(binaries: Binaries) -> list[str]:
    if binaries.major >= _BUILTIN_LOCALES_SINCE:  # does not depend on the locales that the host has
        return ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
    return ["--locale=C.UTF-8"]


def _pipe_with(content: bytes, account: Account) -> int:
    """The reading end of a pipe that holds `content`; a file would have to be readable by two accounts."""
    reading, writing = os.pipe()
    if account.other:
        os.fchown(reading, account.uid, account.gid)
    os.write(writing, content)
    os.close(writing)
    return reading
