"""The benchmark as a command: the smallest load from start to end, and called off in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.embedded]

COMMAND = [sys.executable, "-m", "benchmarks", "--rounds", "1", "--only", "wait1"]
START_S, END_S = 60, 60


def test_the_smallest_load_gives_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    done = subprocess.run(
        [*COMMAND, "--json", str(file)], cwd=ROOT, capture_output=True, text=True, timeout=START_S + END_S
    )
    assert done.returncode == 0, done.stderr
    table = [line.split("|") for line in done.stdout.splitlines() if line.startswith("|")]
    assert {len(row) for row in table} == {9}
    labels = [row[1].strip() for row in table[2:]]
    assert labels[0] == "operate, wait, 1 client, p50"
    found = json.loads(file.read_text())
    assert [line["label"] for line in found["lines"]] == labels
    assert {name: len(values) for name, values in found["samples"].items() if "wait1" in name} == {
        "branchline.wait1_ms": 1,
        "direct.wait1_ms": 1,
    }
    assert not _folders()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="child processes are found in /proc")
def test_called_off_it_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "said"
    with log.open("wb") as said, _ended(subprocess.Popen([*COMMAND], cwd=ROOT, stderr=said)) as bench:
        deadline = time.monotonic() + START_S
        while "Round 1" not in log.read_text() and bench.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        children = _descendants(bench.pid)
        bench.send_signal(signal.SIGINT)
        assert bench.wait(END_S) == 130, log.read_text()
    assert len(children) >= 3  # the fake model, the service, and Postgres with its own
    assert [pid for pid in children if _runs(pid)] == []
    assert not _folders()


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(END_S)


def _folders() -> list[Path]:
    return list((ROOT / ".branchline").glob("bench-*"))


def _descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
