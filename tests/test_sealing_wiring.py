"""Which keys seal, by the settings and the data directory."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.sealing_wiring import vault_of
from app.settings import BadSettings, Settings, load_settings

OLD, NEW = (f"{id}:{base64.b64encode(bytes([n]) * 32).decode()}" for n, id in enumerate(("old", "new")))


def of(tmp_path: Path, *keys: str, file: Path | None = None) -> Settings:
    return Settings(
        sealing_keys=tuple(map(SecretStr, keys)), sealing_key_file=file, data_dir=tmp_path / "data"
    )


def test_the_keys_of_the_settings_count_in_their_order(tmp_path: Path) -> None:
    assert vault_of(of(tmp_path, NEW, OLD), make=True).key_ids == ("new", "old")
    assert not (tmp_path / "data").exists()


def test_a_file_may_hold_them(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# new since May\n{NEW}\n{OLD}\n")
    assert vault_of(of(tmp_path, file=file)).key_ids == ("new", "old")


def test_in_development_one_is_made_and_is_used_from_then_on(tmp_path: Path) -> None:
    assert vault_of(of(tmp_path)).key_ids == ()
    assert vault_of(of(tmp_path), make=True).key_ids == ("local",)
    assert vault_of(of(tmp_path)).key_ids == ("local",)


@pytest.mark.parametrize(
    ("keys", "text", "words"),
    [
        (["old:aGlkZGVu"], None, "'old' has 6 bytes"),
        ([OLD], OLD, "not both"),
        ([], "", "there is no key"),
        ([], "old", "key 1 is not written"),
        ([], None, "cannot be read"),
    ],
)
def test_bad_keys_stop_the_start_in_a_line(
    tmp_path: Path, keys: list[str], text: str | None, words: str
) -> None:
    file = None if keys and text is None else tmp_path / "keys"
    if text is not None:
        (tmp_path / "keys").write_text(text)
    with pytest.raises(BadSettings, match=words) as caught:
        vault_of(of(tmp_path, *keys, file=file))
    assert "aGlkZGVu" not in str(caught.value)


def test_keys_come_from_the_environment_and_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRANCHLINE_SEALING_KEYS", f"{NEW}, {OLD}")
    settings = load_settings()
    assert vault_of(settings).key_ids == ("new", "old")
    shown = repr(settings) + settings.model_dump_json()
    assert NEW.partition(":")[2] not in shown
