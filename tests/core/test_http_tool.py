"""How tools over HTTP are described."""

from __future__ import annotations

import pytest

from app.core.http_tool import CONNECT_MS, FIRST_BYTE_MS, TOTAL_MS, HttpSettings, header_faults


def test_settings_are_json_that_says_everything_and_comes_back() -> None:
    http = HttpSettings("https://tools.example", {"X-Key": "env:KEY", "X-Team": "a"}, 1, 2, 3)
    assert HttpSettings.of(http.settings()) == http
    limits = HttpSettings("https://tools.example").settings()["timeout_ms"]
    assert limits == {"connect": CONNECT_MS, "first_byte": FIRST_BYTE_MS, "total": TOTAL_MS}


def test_values_of_headers_are_in_no_traceback() -> None:
    assert "secret" not in repr(HttpSettings("https://tools.example", {"X": "secret"}))


@pytest.mark.parametrize(
    ("names", "at_fault"),
    [
        (["Authorization", "X-A"], []),
        (["Host", "X-A", "TRANSFER-ENCODING"], ["Host", "TRANSFER-ENCODING"]),
        (["x-a", "X-A", "x-b"], ["X-A"]),
    ],
)
def test_some_headers_are_ours_and_none_stands_twice(names: list[str], at_fault: list[str]) -> None:
    assert list(header_faults(dict.fromkeys(names))) == at_fault
