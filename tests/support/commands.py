"""Commands that answer as models, for tests: small Python programs, and the operator's settings for them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.adapters.command_model.command import Command, command_of
from app.adapters.command_model.settings import CommandSettings

PLAYER = Path(__file__).with_name("command_player.py")
PYTHON = (sys.executable, "-S", "-E")
"""A Python that starts fast."""

Steps = Sequence[dict[str, Any]]


def settings(*argv: str, **more: Any) -> CommandSettings:
    """A command that is run in the folder `/`, unless it is said otherwise."""
    return CommandSettings(argv=argv, **{"cwd": Path("/"), **more})


def python(code: str, *arguments: str, environ: Mapping[str, str] | None = None, **more: Any) -> Command:
    """A command that runs this code."""
    known = {"PATH": os.defpath, **(environ or {})}
    return command_of(settings(*PYTHON, "-c", code, *arguments, **more), known)


def plays(folder: Path, *attempts: Steps, **more: Any) -> CommandSettings:
    """A command that plays one attempt after the other; see `command_player`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "attempts.json").write_text(json.dumps(attempts), "utf-8")
    return settings(*PYTHON, str(PLAYER), str(folder), **more)


def told(folder: Path, nth: int = 0) -> Any:
    """What the n-th run was told, from 0."""
    return json.loads((folder / f"told-{nth}").read_text("utf-8"))


def runs(folder: Path) -> int:
    """How often it was run."""
    return len(list(folder.glob("told-*")))


def model(of: CommandSettings, **more: Any) -> dict[str, Any]:
    """A model of the operator's that this command answers for."""
    return {"provider": "command", "model": "m", "command": of.model_dump(mode="json"), **more}


def alive(pid: int) -> bool:
    """Whether there is such a process; one that has ended and was not waited for counts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def all_gone(folder: Path) -> bool:
    """Whether every run has ended, and was waited for."""
    ids = [path.read_text("utf-8") for path in folder.glob("pid-*")]
    return not any(alive(int(id)) for id in ids if id)


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended, and was not waited for, does not."""
    if sys.platform != "linux":
        return alive(pid)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
