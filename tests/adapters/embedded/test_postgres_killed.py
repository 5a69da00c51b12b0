"""The embedded database when processes are killed: it ends with its users and comes back with its data."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from app.adapters.embedded.account import account_for
from app.adapters.embedded.layout import Layout
from app.adapters.embedded.postgres import EmbeddedPostgres
from tests.adapters.embedded.conftest import Holder
from tests.adapters.embedded.test_postgres import value
from tests.support.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.embedded]

Hold = Callable[[Path], Holder]


def postmaster(root: Path) -> int:
    pid = Layout(root).server().pid()
    assert pid is not None
    return pid


def test_the_server_ends_when_its_only_user_is_killed(home: Path, hold: Hold) -> None:
    user = hold(home)
    user.report()
    server = Layout(home).server()
    assert server.runs()
    user.kill()
    eventually(lambda: not server.runs(), what="server ended after its user")


def test_the_server_stays_while_another_process_uses_it(home: Path, hold: Hold) -> None:
    with EmbeddedPostgres(home) as postgres:
        killed = hold(home)
        killed.report()
        killed.kill()
        killed = hold(home)  # its report shows that the first one's watchdog has had its turn at the lock
        killed.report()
        killed.kill()
        assert postgres.is_ready()


def test_a_start_right_after_the_kill_works(home: Path, hold: Hold) -> None:
    user = hold(home)
    user.report()
    user.kill()
    with EmbeddedPostgres(home) as postgres:
        assert postgres.is_ready()


async def test_a_killed_server_comes_back_with_its_data(home: Path) -> None:
    with EmbeddedPostgres(home) as postgres:
        await value(postgres.url, "CREATE TABLE leaf AS SELECT 7 AS x")
        os.kill(postmaster(home), signal.SIGKILL)
        eventually(lambda: not postgres.is_ready())
        postgres.revive()
        assert await value(postgres.url, "SELECT x FROM leaf") == 7


def test_server_and_user_killed_together(home: Path, hold: Hold) -> None:
    user = hold(home)
    user.report()
    os.kill(postmaster(home), signal.SIGKILL)
    user.kill()
    with EmbeddedPostgres(home) as postgres:
        assert postgres.is_ready()


@pytest.mark.parametrize("alone", [False, True], ids=["with initdb", "initdb orphaned"])
def test_a_user_killed_in_the_middle_of_initialisation(home: Path, hold: Hold, alone: bool) -> None:
    user = hold(home)
    layout = Layout(home)
    eventually((layout.unfinished / "base").exists)
    user.kill(alone=alone)
    with EmbeddedPostgres(home) as postgres:
        assert postgres.is_ready()
        assert not layout.unfinished.exists()


@pytest.mark.parametrize("reached", ["pgdata", "postgres.log", "pgdata/postmaster.pid", "sock/.s.PGSQL.5432"])
def test_a_user_killed_while_the_server_comes_up(home: Path, hold: Hold, reached: str) -> None:
    user = hold(home)
    eventually((home / reached).exists)
    user.kill()
    server = Layout(home).server()
    eventually(lambda: not server.runs(), what="server without user ended")
    with EmbeddedPostgres(home) as postgres:
        assert postgres.is_ready()


def test_a_process_that_has_the_dead_servers_id_does_no_harm(home: Path) -> None:
    with EmbeddedPostgres(home):
        identity = (home / "pgdata" / "postmaster.pid").read_text().splitlines()
        os.kill(postmaster(home), signal.SIGKILL)
        eventually(lambda: not Layout(home).server().runs())
    account = account_for(home / "pgdata")
    with subprocess.Popen("/bin/cat", stdin=subprocess.PIPE, cwd="/", **account.credentials) as foreign:
        stale = "\n".join([str(foreign.pid), *identity[1:]]) + "\n"
        (home / "pgdata" / "postmaster.pid").write_text(stale)
        (home / "sock" / ".s.PGSQL.5432.lock").write_text(stale)
        try:
            with EmbeddedPostgres(home) as postgres:
                assert postgres.is_ready()
            assert foreign.poll() is None
        finally:
            foreign.kill()


def test_a_server_that_hangs_is_replaced(home: Path) -> None:
    with EmbeddedPostgres(home):
        hung = postmaster(home)
        os.kill(hung, signal.SIGSTOP)
        said: list[str] = []
        with EmbeddedPostgres(home, silence_s=0.2, say=said.append) as second:
            assert second.is_ready()
            assert postmaster(home) != hung
        assert any("does not answer" in word for word in said)
