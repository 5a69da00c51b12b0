"""The installation's secrets."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.adapters.sealing import keys_in
from app.adapters.secret_file import sealing_keys_in, secret_in


def test_a_secret_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    secret = secret_in(folder)
    assert len(secret) == 43
    assert secret_in(folder) == secret
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret_in(tmp_path / "other") != secret


def test_all_who_ask_at_once_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: secret_in(tmp_path), range(32)))
    assert len(set(found)) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["secret_key"]


def test_a_sealing_key_is_made_once_where_it_may_be(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert sealing_keys_in(folder, make=False) == []
    assert not folder.exists()
    made = sealing_keys_in(folder, make=True)
    assert list(keys_in(made)) == ["local"]
    assert sealing_keys_in(folder, make=True) == sealing_keys_in(folder, make=False) == made
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_operator_may_add_keys_and_remarks_to_the_file(tmp_path: Path) -> None:
    (old,) = sealing_keys_in(tmp_path, make=True)
    (tmp_path / "sealing_keys").write_text(f"# of May\n new:x \n\n{old}\n")
    assert sealing_keys_in(tmp_path, make=True) == ["new:x", old]
