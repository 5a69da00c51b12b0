"""The installation's secret, made once and kept in a file that only its owner reads."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

NAME = "secret_key"


def secret_in(folder: Path) -> str:
    """The secret kept in `folder`; made, 256 bits with mode 0600, when there is none. Blocks on the disk."""
    path = folder / NAME
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=folder, prefix=f".{NAME}.")
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
        file.flush()
        os.fsync(file.fileno())
    # A link, unlike a rename, never replaces what another process made in the meantime.
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    os.unlink(draft)
    return path.read_text().strip()
