"""The process that ends commands when the one that started them has died."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.adapters.command_model.watchdog import Watchdog
from tests.support.commands import is_running

ROOT = Path(__file__).resolve().parents[3]
DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(3600)"
)
SLEEPS = "import time; print(flush=True); time.sleep(3600)"

PARENT = """
import subprocess, sys, time
from app.adapters.command_model.watchdog import Watchdog
dog = Watchdog()
for code in sys.argv[1:]:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    dog.watch(child.pid)
    print(child.pid, flush=True)
print("ready", flush=True)
time.sleep(3600)
"""


def wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def group() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group of its own."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE, start_new_session=True)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_it_ends_what_a_killed_process_ran() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, SLEEPS, DEAF],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as parent:
        assert parent.stdout is not None
        lines = iter(parent.stdout.readline, b"ready\n")
        pids = [int(line) for line in lines]
        assert all(map(is_running, pids))
        parent.kill()
    wait(lambda: not any(map(is_running, pids)))


def test_it_leaves_alone_what_has_ended(group: subprocess.Popen[bytes]) -> None:
    """The number may stand for somebody else's group by then."""
    dog = Watchdog()
    dog.watch(group.pid)
    dog.forget(group.pid)
    dog.close()
    assert group.poll() is None


def test_a_close_ends_what_is_still_watched(group: subprocess.Popen[bytes]) -> None:
    dog = Watchdog()
    dog.watch(group.pid)
    dog.close()
    assert group.wait(30) == -signal.SIGTERM


def test_another_takes_the_place_of_one_that_died(group: subprocess.Popen[bytes]) -> None:
    dog = Watchdog()
    dog.watch(group.pid)
    assert dog._process is not None
    dog._process.kill()
    dog._process.wait()
    dog.forget(2**22 + 1)  # says nothing to one that is not there
    dog.watch(2**22 + 2)
    dog.close()
    assert group.wait(30) == -signal.SIGTERM


def test_nothing_is_started_for_nothing() -> None:
    dog = Watchdog()
    dog.forget(1)
    dog.close()
    assert dog._process is None


def test_a_signal_to_our_group_does_not_reach_it(group: subprocess.Popen[bytes]) -> None:
    dog = Watchdog()
    dog.watch(group.pid)
    assert dog._process is not None
    assert os.getsid(dog._process.pid) == dog._process.pid
    with contextlib.closing(dog):
        assert dog._process.poll() is None
