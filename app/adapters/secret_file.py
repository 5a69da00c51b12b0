"""Secrets of the installation, each made once and kept in a file that only its owner reads."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import tempfile
from pathlib import Path

NAME = "secret_key"
SEALING = "sealing_keys"


def secret_in(folder: Path) -> str:
    """The secret kept in `folder`; made, 256 bits with mode 0600, when there is none. Blocks on the disk."""
    return _kept(folder / NAME, secrets.token_urlsafe(32))


def sealing_keys_in(folder: Path, *, make: bool) -> list[str]:
    """The lines `id:base64` of the keys kept in `folder`; with `make`, one is made when there is none.

    Blocks on the disk.
    """
    path = folder / SEALING
    if make:
        text = _kept(path, "local:" + base64.b64encode(secrets.token_bytes(32)).decode())
    else:
        try:
            text = path.read_text()
        except (FileNotFoundError, NotADirectoryError):
            return []
    return lines_of(text)


def lines_of(text: str) -> list[str]:
    """Lines that say something; `#` begins a remark."""
    return [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]


def _kept(path: Path, draft: str) -> str:
    """What the file holds; `draft` when there is none."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w") as file:
        file.write(draft + "\n")
        file.flush()
        os.fsync(file.fileno())
    # A link, unlike a rename, never replaces what another process made in the meantime.
    with contextlib.suppress(FileExistsError):
        os.link(made, path)
    os.unlink(made)
    return path.read_text().strip()
