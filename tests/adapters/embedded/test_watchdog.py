"""The watchdog by itself, without a server."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.adapters.embedded.layout import Layout, write_private
from app.adapters.embedded.locks import FileLock
from app.adapters.embedded.watchdog import Watchdog
from tests.adapters.embedded.conftest import PROJECT
from tests.support.waiting import eventually


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A database's files, with a folder outside that goes away when the watchdog has acted."""
    layout = Layout(tmp_path)
    for lock in (layout.start_lock, layout.users_lock):
        FileLock(lock).close()
    write_private(tmp_path / "shelter", tempfile.mkdtemp(prefix="branchline-").encode())
    return layout


@contextmanager
def watching(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A watchdog whose owner is the block."""
    command = [sys.executable, "-m", "app.adapters.embedded.watchdog", str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT) as process:
        assert process.stdout
        assert process.stdout.read(1) == b"!"
        yield process
    assert process.returncode == 0


def test_it_acts_when_its_owner_is_gone(layout: Layout) -> None:
    with watching(layout.root):
        assert layout.shelter is not None
    assert layout.shelter is None


def test_it_waits_for_an_owner_that_is_still_dying(layout: Layout) -> None:
    with FileLock(layout.users_lock) as users:
        users.share()
        with watching(layout.root) as process:
            assert process.stdin
            process.stdin.close()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            assert layout.shelter is not None
            users.unlock()
            eventually(lambda: layout.shelter is None)


def test_it_makes_no_files_where_the_database_was_removed(tmp_path: Path) -> None:
    with watching(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_called_off_it_does_nothing(layout: Layout) -> None:
    watchdog = Watchdog(layout.root, layout.log)
    watchdog.check()
    watchdog.check()
    assert watchdog.lives()
    watchdog.call_off()
    assert layout.shelter is not None
    layout.remove_shelter()
