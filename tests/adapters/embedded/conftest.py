"""A place for a database, and other processes that use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.adapters.embedded.layout import Layout
from tests.support.waiting import eventually

PROJECT = Path(__file__).resolve().parents[3]


@dataclass
class Holder:
    """Another process that uses an embedded part."""

    process: subprocess.Popen[str]

    def report(self) -> dict[str, str]:
        """What it found; waits until its part is ready."""
        assert self.process.stdout is not None
        report: dict[str, str] = json.loads(self.process.stdout.readline())
        return report

    def kill(self, *, alone: bool = False) -> None:
        """Kill it, and unless `alone` everything in its process group, with no chance to clean up."""
        (os.kill if alone else os.killpg)(self.process.pid, signal.SIGKILL)
        self.close()

    def finish(self) -> None:
        """Let it stop in its own way."""
        self.close()
        assert self.process.returncode == 0

    def close(self) -> None:
        """End its input and wait for it."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()
        self.process.wait()


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that every account can reach, unlike pytest's own; its server has ended when the test ends."""
    with tempfile.TemporaryDirectory(prefix="branchline-embedded-") as folder:
        os.chmod(folder, 0o755)
        root = Path(folder) / "db"
        yield root
        if root.exists():
            eventually(lambda: not Layout(root).server().runs(), what=f"server of {root} ended")


@pytest.fixture
def run_module() -> Iterator[Callable[..., Holder]]:
    """Start modules of this folder as processes."""
    started: list[Holder] = []

    def start(name: str, *arguments: str) -> Holder:
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.adapters.embedded.{name}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            start_new_session=True,
        )
        started.append(Holder(process))
        return started[-1]

    yield start
    for holder in started:
        if holder.process.poll() is None:
            holder.kill()
        holder.close()


@pytest.fixture
def hold(run_module: Callable[..., Holder]) -> Callable[[Path], Holder]:
    """Start processes that use the database of a root."""
    return lambda root: run_module("holder", str(root))
