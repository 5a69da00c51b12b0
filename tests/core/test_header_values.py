"""What values of headers name, and what may be shown of them."""

from __future__ import annotations

import pytest

from app.core.header_values import credentials_in, is_secret, sealed_in, shown, variables_in

HEADERS = {"A": "env:KEY", "B": "credential:c", "C": "written", "D": "sealed:1:k:AAAA", "E": "Env:KEY"}


def test_what_is_named_is_found_by_header() -> None:
    assert variables_in(HEADERS) == {"A": "KEY"}
    assert credentials_in(HEADERS) == {"B": "c"}
    assert sealed_in(HEADERS) == ["D"]
    assert shown(HEADERS | {"F": 5}) == {
        "A": "env:KEY",
        "B": "credential:c",
        **dict.fromkeys(("C", "D", "E", "F")),
    }


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("a", True),
        ("B", True),
        ("C", False),
        ("Authorization", True),
        ("X-Api-Key", True),
        ("cookie", True),
        ("X-Team", False),
    ],
)
def test_secrets_are_those_that_are_named_and_those_that_are_called_so(name: str, secret: bool) -> None:
    assert is_secret(name, HEADERS) is secret
