"""The measurement in a large log, on a small one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.large_log import WEEKS
from tests.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.embedded]


def test_it_gives_its_table_and_its_plans() -> None:
    command = [sys.executable, "-m", "benchmarks", "--large-log", "2000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "102,000 rows of events and 41 blocks" in done.stdout
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 2 * 4
    assert f"{WEEKS // 2} weeks dropped" in done.stdout
    # Each plan looks into one week of either table, and sorts nothing.
    plans = done.stdout.split("```")[1::2]
    assert len(plans) == 4
    for plan in plans:
        assert plan.count("Index Scan using events_w") == plan.count("Index Scan using token_blocks_w") == 1
        assert plan.count("Subplans Removed") == 2
        assert "Sort Method" not in plan
