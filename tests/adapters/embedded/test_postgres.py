"""The embedded database in ordinary life: start, share, stop, refuse."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.adapters.embedded.account import account_for
from app.adapters.embedded.binaries import choose, discover
from app.adapters.embedded.errors import PostgresFailed, PostgresUnusable
from app.adapters.embedded.layout import Layout
from app.adapters.embedded.postgres import EmbeddedPostgres
from app.adapters.embedded.server import Answer
from tests.adapters.embedded.conftest import Holder
from tests.support.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.embedded]

Hold = Callable[[Path], Holder]


async def value(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_data_outlives_the_server_and_the_server_ends_with_its_user(home: Path) -> None:
    said: list[str] = []
    with EmbeddedPostgres(home, say=said.append) as postgres:
        assert postgres.is_ready()
        await value(postgres.url, "CREATE TABLE leaf AS SELECT 7 AS x")
    assert not Layout(home).server().runs()
    assert not postgres.is_ready()
    with EmbeddedPostgres(home, say=said.append) as postgres:
        assert await value(postgres.url, "SELECT x FROM leaf") == 7
    assert [word for word in said if "Initialising" in word] == said[:1]


async def test_durability_is_as_postgres_has_it_and_the_server_is_small(home: Path) -> None:
    with EmbeddedPostgres(home, settings={"max_connections": "17"}) as postgres:
        for name, expected in {
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "max_connections": "17",
            "jit": "off",
            "listen_addresses": "",
            "server_encoding": "UTF8",
        }.items():
            assert await value(postgres.url, f"SHOW {name}") == expected
        assert await value(postgres.url, "SELECT lower('Ä')") == "ä"
        assert await value(postgres.url, "SELECT string_agg(x, '' ORDER BY x) FROM unnest('{b,A,a,é}'::text[]) x") == "Aabé"  # fmt: skip # noqa: E501


async def test_only_the_password_lets_anybody_in(home: Path) -> None:
    with EmbeddedPostgres(home) as postgres:
        layout = Layout(home)
        assert mode(layout.password) == 0o600
        assert mode(layout.data) == 0o700
        assert mode(layout.sockets) in (0o700, 0o711)
        password = urlsplit(postgres.url).password
        assert password
        for wrong in (postgres.url.replace(password, "guess"), postgres.url.replace(f":{password}", "")):
            with pytest.raises(asyncpg.InvalidPasswordError):
                await value(wrong, "SELECT 1")


async def test_other_databases_of_the_server_have_urls(home: Path) -> None:
    with EmbeddedPostgres(home) as postgres:
        await value(postgres.url, "CREATE DATABASE annex")
        assert await value(postgres.url_of("annex"), "SELECT current_database()") == "annex"


def test_two_processes_at_once_share_one_server_and_the_last_one_ends_it(home: Path, hold: Hold) -> None:
    first, second = hold(home), hold(home)
    assert first.report() == second.report()
    first.finish()
    assert Layout(home).server().runs()
    second.finish()
    assert not Layout(home).server().runs()


def test_files_of_others_beside_the_database_are_left_alone(home: Path) -> None:
    home.mkdir(mode=0o750)
    (home / "notes.txt").write_text("mine")
    (home / "data").mkdir()
    with EmbeddedPostgres(home) as postgres:
        assert postgres.is_ready()
    assert (home / "notes.txt").read_text() == "mine"
    assert (home / "data").is_dir()
    assert mode(home) == 0o750


async def test_a_path_too_long_for_a_socket_gets_one_elsewhere(home: Path) -> None:
    root = home / ("deep" * 15) / ("er" * 30)
    with EmbeddedPostgres(root) as postgres:
        assert await value(postgres.url, "SELECT 1") == 1
        elsewhere = Layout(root).shelter
        assert elsewhere is not None
        with EmbeddedPostgres(root) as second:
            assert second.url == postgres.url
    assert not elsewhere.exists()
    assert Layout(root).shelter is None


async def test_a_recorded_folder_elsewhere_that_is_not_ours_is_not_used(home: Path, tmp_path: Path) -> None:
    root = home / ("deep" * 30)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    link = tmp_path / "link"
    link.symlink_to(foreign)
    root.mkdir(parents=True)
    (root / "shelter").write_text(str(link))
    with EmbeddedPostgres(root):
        assert Layout(root).shelter not in (None, link)
    assert list(foreign.iterdir()) == []


def test_a_directory_of_another_major_version_is_refused_with_advice(home: Path) -> None:
    layout = Layout(home)
    layout.data.mkdir(parents=True)
    (layout.data / "PG_VERSION").write_text("9\n")
    with pytest.raises(PostgresUnusable) as caught:
        EmbeddedPostgres(home).start()
    assert "made by Postgres 9" in str(caught.value)
    assert "DATABASE_URL" in str(caught.value)
    assert next(iter(discover())).version in str(caught.value)


def test_a_folder_in_the_place_of_the_data_is_refused(home: Path) -> None:
    (home / "pgdata").mkdir(parents=True)
    (home / "pgdata" / "thesis.txt").write_text("mine")
    with pytest.raises(PostgresUnusable, match="not a Postgres data directory"):
        EmbeddedPostgres(home).start()
    assert (home / "pgdata" / "thesis.txt").read_text() == "mine"


def test_a_server_that_cannot_start_says_why(home: Path) -> None:
    postgres = EmbeddedPostgres(home, settings={"max_connections": "none"})
    with pytest.raises(PostgresFailed, match="max_connections"):
        postgres.start()
    with EmbeddedPostgres(home) as healthy:
        assert healthy.is_ready()


def test_a_server_started_by_hand_is_not_taken_over(home: Path) -> None:
    with EmbeddedPostgres(home):
        pass
    layout = Layout(home)
    account = account_for(layout.data)
    binaries = choose(discover(), layout.major(), layout.data)
    with subprocess.Popen(
        [binaries.bin / "postgres", "-D", str(layout.data), "-k", str(layout.sockets), "-h", ""],
        stderr=subprocess.DEVNULL,
        **account.credentials,
    ) as by_hand:
        try:
            eventually(lambda: layout.server().answer() is Answer.READY)
            with pytest.raises(PostgresUnusable, match=f"process {by_hand.pid}"):
                EmbeddedPostgres(home).start()
            assert by_hand.poll() is None
        finally:
            by_hand.terminate()


def test_stopping_twice_or_before_starting_is_harmless(home: Path) -> None:
    postgres = EmbeddedPostgres(home)
    postgres.stop()
    postgres.start()
    postgres.stop()
    postgres.stop()
    postgres.revive()
    assert not Layout(home).server().runs()
