"""The process that stops the embedded database when the one that started it dies, however it dies.

Run as `python -m app.adapters.embedded.watchdog <root>` with a pipe from that process as standard input: the
pipe ends with its writer. It imports little, because it stays for as long as the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from app.adapters.embedded.layout import Layout
from app.adapters.embedded.locks import FileLock

_APP_PARENT = Path(__file__).resolve().parents[3]
_WAIT_S = 600.0


def spawn(root: Path) -> subprocess.Popen[bytes]:
    """Start a watchdog for the calling process and the database in `root`.

    It leads a session of its own, so that a signal to the parent's process group leaves it alone.
    Kill it to call it off.
    """
    return subprocess.Popen(
        [sys.executable, "-S", "-m", __spec__.name, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env={"PYTHONPATH": str(_APP_PARENT), "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def main(root: Path) -> None:
    """Wait for the end of standard input, then stop the server unless somebody still uses it."""
    os.read(sys.stdin.fileno(), 1)
    layout = Layout(root)
    with FileLock(layout.start_lock) as start, FileLock(layout.users_lock) as users:
        if start.exclusive(_WAIT_S) and users.try_exclusive():
            layout.server().halt()
            layout.remove_shelter()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
