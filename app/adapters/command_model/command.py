"""A command of the operator's, ready to be started."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from app.adapters.command_model.settings import CommandSettings
from app.adapters.model_exchange import secrets_among

_ORDINARY: Final = re.compile(r"(?:PATH|HOME|USER|LOGNAME|SHELL|PWD|TERM|TZ|TMPDIR|LANG|LC_\w+|XDG_\w+)")
"""Variables that hold no secret: their values need not be masked."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that can be started."""

    settings: CommandSettings
    argv: tuple[str, ...]
    """With the path of the program at its head."""
    env: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    """Values that must not stand in what is told of it, the longest first."""


def command_of(settings: CommandSettings, environment: Mapping[str, str]) -> Command:
    """The command, found and with its variables. Raises ValueError saying what is not there."""
    program = shutil.which(settings.argv[0], path=environment.get("PATH"))
    if program is None:
        raise ValueError(f"argv: there is no command {settings.argv[0]!r}")
    if not settings.cwd.is_dir():
        raise ValueError(f"cwd: there is no folder {str(settings.cwd)!r}")
    missing = [name for name in settings.env if name not in environment]
    if missing:
        raise ValueError(f"env: not set are {', '.join(missing)}")
    env = {name: environment[name] for name in settings.env}
    secrets = secrets_among([value for name, value in env.items() if not _ORDINARY.fullmatch(name)])
    argv = (str(Path(program).absolute()), *settings.argv[1:])
    return Command(settings, argv, env, tuple(sorted(secrets, key=len, reverse=True)))
