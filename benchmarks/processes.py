"""Child processes that end with this one, and what a process has cost so far."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
END_S: Final = 20.0
"""How long a child may take to end after it was asked to."""

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")
_PARENT, _CHILDREN_TIMES = 1, (13, 14)
"""Fields of `stat` after the name."""


class ChildFailed(Exception):
    """A child process ended, or did not come up; the message holds the last that it said."""


@contextlib.contextmanager
def child(
    module: str, *arguments: str, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python module run as a program for the length of the block; its standard input is a pipe of ours.

    What it says goes to `<folder>/<module>.log`. It has a session of its own, so that a Ctrl-C reaches this
    process alone, which ends its children in order.
    """
    with log_of(module, folder).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=folder,
            env={**(os.environ if environment is None else environment), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def log_of(module: str, folder: Path) -> Path:
    """Where a child's words are kept."""
    return folder / f"{module}.log"


def awaited_line(process: subprocess.Popen[bytes], log: Path, prefix: str, within_s: float) -> str:
    """The first line that begins with `prefix`, when the child has said it. Raises ChildFailed."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text(errors="replace").splitlines(keepends=True):
            if line.startswith(prefix) and line.endswith("\n"):
                return line.strip()
        time.sleep(0.02)
    raise ChildFailed(f"{log.stem} did not come up; it said:\n{last_words(log)}")


def last_words(log: Path) -> str:
    """The end of a log."""
    return log.read_text(errors="replace")[-2000:]


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# What processes cost. Only Linux tells; elsewhere each of these is NaN or empty.


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds that the living threads of these processes have used."""
    if not _PROC.is_dir():
        return float("nan")
    return sum(_threads_cpu_s(pid) for pid in pids)


def _threads_cpu_s(pid: int) -> float:
    total = 0.0
    for task in _PROC.glob(f"{pid}/task/*"):
        with contextlib.suppress(OSError):
            # In nanoseconds, where `stat` counts in ticks of 10 ms.
            total += int((task / "schedstat").read_text().split()[0]) / 1e9
    return total


def resident_mb(pid: int) -> float:
    """Resident memory of a process."""
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
    return float("nan")


def postgres_cpu_s(backend: int) -> float:
    """CPU seconds of the Postgres server that `backend` belongs to; NaN if it is on another machine.

    Processes of it that have ended are included.
    """
    with contextlib.suppress(OSError):
        if (_PROC / str(backend) / "comm").read_text().startswith("postgres"):
            parent = int(_stat(backend)[_PARENT])
            reaped = sum(int(_stat(parent)[index]) for index in _CHILDREN_TIMES) * _TICK_S
            return reaped + cpu_s([parent, *_children_of(parent)])
    return float("nan")


def _children_of(parent: int) -> list[int]:
    found: list[int] = []
    for entry in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(_stat(int(entry.name))[_PARENT]) == parent:
                found.append(int(entry.name))
    return found


def _stat(pid: int) -> list[str]:
    # The name before these fields is in brackets and may hold anything.
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def machine_busy_s() -> float:
    """CPU seconds that this machine has spent on anything since it started."""
    with contextlib.suppress(OSError):
        user, nice, system, _, _, irq, softirq, *_ = (_PROC / "stat").read_text().split()[1:9]
        return sum(map(int, (user, nice, system, irq, softirq))) * _TICK_S
    return float("nan")
