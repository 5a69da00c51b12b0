"""What every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# A slow example on a busy machine is no failure of ours; pytest's own timeout bounds what hangs.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

pytest_plugins = [
    "tests.support.postgres",
    "tests.support.database",
    "tests.support.service",
    "tests.support.ran",
]

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
"""Material that lies beside a checkout in some places; tests that read it have small twins of their own."""

DATA = Path(__file__).resolve().parent / "data"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio, as the service does; of the session, for fixtures of any scope."""
    return "asyncio"
