"""What must hold of a run whatever its model or its tools said."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import structlog
from hypothesis import event

from tests.support.holding import watched
from tests.support.service import Service

LONGEST_HOLD_S: Final = 1.0
"""Of processor time for which one thing may keep all others waiting."""


class Faults(logging.Handler):
    """What libraries log as a fault; the event loop says so what nobody else heard of."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See the base class."""
        self.told.append(f"{record.name}: {record.getMessage()}")


@contextmanager
def nothing_breaks() -> Iterator[None]:
    """Fails if something was logged as a fault of ours in the block, or if the event loop was held by it."""
    faults, root = Faults(), logging.getLogger()
    root.addHandler(faults)
    try:
        with watched() as held, structlog.testing.capture_logs() as logs:
            yield
    finally:
        root.removeHandler(faults)
    assert faults.told == []
    ours = [entry for entry in logs if entry["log_level"] in ("error", "critical") or "exc_info" in entry]
    assert ours == []
    assert held.longest_s < LONGEST_HOLD_S, f"the event loop was held for {held.longest_s:.2f} s"


async def ends_well(service: Service, run: Mapping[str, Any]) -> None:
    """It has an end of its own, with a reason that is not our fault, and can be read in every form."""
    assert run["status"] in ("completed", "failed")
    event(f"a run: {run['status']} {(run['error'] or {}).get('code', '')}")
    if run["status"] == "failed":
        error = run["error"]
        assert error["code"]
        assert error["message"]
        assert error["code"] not in ("INTERNAL", "PROCESS_LOST")
        assert "adapter failed" not in error["message"].lower()
    log = await service.events(run["id"])  # which looks at each of them
    assert log[-1]["type"] == ("RUN_COMPLETED" if run["status"] == "completed" else "RUN_FAILED")
    for view in ("callbacks", "partial"):
        answer = await service.http.get(f"/v1/runs/{run['id']}/events?view={view}&limit=1000")
        assert answer.status_code == 200, answer.text
    assert await service.get(f"/v1/runs/{run['id']}") == run
