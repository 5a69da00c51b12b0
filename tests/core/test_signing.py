"""Which secrets things are signed with, and by what name."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.core.signing import Signing
from app.core.webhooks import LEAST_SECRET_BYTES, is_secret, secret_of


@pytest.mark.parametrize("said", [{"env": "SHOP_SIGNING"}, {"credential": "shop.signing-1"}])
def test_a_secret_has_one_name(said: dict[str, str]) -> None:
    assert Signing.model_validate(said).model_dump(exclude_none=True) == said


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"env": None},
        {"env": "A", "credential": "b"},
        {"env": ""},
        {"env": "A B"},
        {"env": "A\n"},
        {"credential": "x" * 129},
        {"secret": "whsec_AAAA"},
        "A",
    ],
)
def test_what_names_no_secret(said: Any) -> None:
    with pytest.raises(ValidationError):
        Signing.model_validate(said)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (secret_of(b"s" * 32), True),
        (secret_of(b"s" * 32).removeprefix("whsec_"), True),
        (secret_of(b"s" * LEAST_SECRET_BYTES), True),
        (secret_of(b"s" * (LEAST_SECRET_BYTES - 1)), False),
        ("", False),
        ("whsec_", False),
        ("a password that is long enough to be one", False),
        ("whsec_" + "ä" * 40, False),
    ],
)
def test_what_can_be_signed_with(text: str, good: bool) -> None:
    assert is_secret(text) is good
