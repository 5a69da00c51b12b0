"""How tools over HTTP are described."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.http_tool import (
    CONNECT_MS,
    FIRST_BYTE_MS,
    MOST_PAUSE_MS,
    MOST_TRIES,
    PAUSE_MS,
    TOTAL_MS,
    TRIES,
    HttpSettings,
    Miss,
    header_faults,
    pause_ms,
)
from app.core.signing import Signing


def test_settings_are_json_that_says_everything_and_comes_back() -> None:
    headers = {"X-Key": "env:KEY", "X-Team": "a"}
    http = HttpSettings("https://tools.example", headers, 1, 2, 3, 4, Signing(env="SECRET"))
    assert HttpSettings.of(http.settings()) == http
    said = HttpSettings("https://tools.example").settings()
    assert said["timeout_ms"] == {"connect": CONNECT_MS, "first_byte": FIRST_BYTE_MS, "total": TOTAL_MS}
    assert (said["tries"], said["signing"]) == (TRIES, None)


def test_settings_of_before_tries_and_signatures_are_understood() -> None:
    http = HttpSettings("https://tools.example")
    old = {name: value for name, value in http.settings().items() if name not in ("tries", "signing")}
    assert HttpSettings.of(old) == http


UNSENT, SENT = Miss(sent=False, passing=True), Miss(sent=True, passing=True)


@pytest.mark.parametrize(
    ("miss", "tries", "idempotent", "expected"),
    [
        (UNSENT, 1, False, PAUSE_MS),
        (UNSENT, 2, False, 2 * PAUSE_MS),
        (UNSENT, 3, False, None),
        (SENT, 1, False, None),
        (SENT, 1, True, PAUSE_MS),
        (SENT, 2, True, 2 * PAUSE_MS),
        (SENT, 3, True, None),
        (Miss(True, True, retry_after_ms=7_000), 1, True, 7_000),
        (Miss(True, True, retry_after_ms=1), 1, True, PAUSE_MS),
        (Miss(True, True, retry_after_ms=7_000), 1, False, None),
        (Miss(True, False), 1, True, None),
        (Miss(False, False), 1, True, None),
    ],
)
def test_when_a_call_is_sent_again(miss: Miss, tries: int, idempotent: bool, expected: float | None) -> None:
    http = HttpSettings("https://tools.example", tries=3)
    assert pause_ms(miss, tries, http, idempotent=idempotent, draw=lambda: 1.0) == expected


@given(
    sent=st.booleans(),
    passing=st.booleans(),
    asked_ms=st.integers(0, 10**9),
    tries=st.integers(1, 10),
    most=st.integers(1, MOST_TRIES),
    idempotent=st.booleans(),
    draw=st.floats(0, 1),
)
def test_pauses_are_bounded_and_nothing_that_was_sent_is_sent_again_without_leave(
    sent: bool, passing: bool, asked_ms: int, tries: int, most: int, idempotent: bool, draw: float
) -> None:
    http = HttpSettings("https://tools.example", tries=most)
    pause = pause_ms(Miss(sent, passing, asked_ms), tries, http, idempotent=idempotent, draw=lambda: draw)
    if pause is None:
        assert not passing or tries >= most or (sent and not idempotent)
    else:
        assert passing
        assert tries < most
        assert idempotent or not sent
        assert asked_ms <= pause <= max(MOST_PAUSE_MS, asked_ms)


def test_values_of_headers_are_in_no_traceback() -> None:
    assert "secret" not in repr(HttpSettings("https://tools.example", {"X": "secret"}))


@pytest.mark.parametrize(
    ("names", "at_fault"),
    [
        (["Authorization", "X-A"], []),
        (["Host", "X-A", "TRANSFER-ENCODING"], ["Host", "TRANSFER-ENCODING"]),
        (["x-a", "X-A", "x-b"], ["X-A"]),
        (["Webhook-Signature", "x-signature"], ["Webhook-Signature"]),
    ],
)
def test_some_headers_are_ours_and_none_stands_twice(names: list[str], at_fault: list[str]) -> None:
    assert list(header_faults(dict.fromkeys(names))) == at_fault
