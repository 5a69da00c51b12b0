"""Replicas under kills, pauses, restarts of the database, a flaky model and flaky tools: nothing is lost.

`BRANCHLINE_CHAOS_S` says for how many seconds, `BRANCHLINE_CHAOS_SEED` with which seed, and
`BRANCHLINE_CHAOS_REPORT` where the report is written. A round's seed and its schedule of troubles are part of
what a failure says.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path

import pytest

from tests.system.chaos.report import report
from tests.system.chaos.rounds import chaos

SECONDS = float(os.environ.get("BRANCHLINE_CHAOS_S", "15"))
SEED = os.environ.get("BRANCHLINE_CHAOS_SEED") or secrets.token_hex(4)
REPORT = os.environ.get("BRANCHLINE_CHAOS_REPORT")

pytestmark = [pytest.mark.anyio, pytest.mark.embedded, pytest.mark.slow]


@pytest.mark.timeout(600 + 4 * SECONDS)
async def test_nothing_is_lost_or_done_twice_whatever_befalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for knob in ("BRANCHLINE_CHAOS_S", "BRANCHLINE_CHAOS_SEED", "BRANCHLINE_CHAOS_REPORT"):
        monkeypatch.delenv(knob, raising=False)  # no settings of the replicas
    rounds = await chaos(tmp_path, SEED, SECONDS, told=print)
    written = report(rounds)
    if REPORT is not None:
        await asyncio.to_thread(Path(REPORT).write_text, written, "utf-8")
    assert rounds
    broken = [one for one in rounds if one.violations]
    assert not broken, written
