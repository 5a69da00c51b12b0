"""What may stand for an image."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from app.core.images import Image


class Body(BaseModel):
    """A body with an image."""

    image: Image


class Context:
    """The address rule of the tests: one host is private."""

    def address_fault(self, url: str) -> str | None:
        """See `core.images.Outside`."""
        return None if url.startswith("https://pictures.example/") else "not this one"


GOOD = [
    "https://pictures.example/a.png",
    "data:image/png;base64,AAAA",
    "data:image/png;base64,AA==",
    "data:image/svg+xml,%3Csvg/%3E",
    "data:image/png;name=a.png;BASE64,AA AA\n",
]
BAD = [
    ("https://10.0.0.1/a.png", "not this one"),
    ("file:///etc/passwd", "not this one"),
    ("a.png", "not this one"),
    ("data:text/html;base64,AAAA", "says its type"),
    ("data:,AAAA", "says its type"),
    ("data:image/png;base64", "says its type"),
    ("data:image/png;base64,", "says its type"),
    ("data:image/;base64,AAAA", "says its type"),
    ("data:image/png;base64,AAA", "no base64"),
    ("data:image/png;base64,<svg>", "no base64"),
    ("data:image/png;base64,ä", "no base64"),
]


@pytest.mark.parametrize("url", GOOD)
def test_images(url: str) -> None:
    assert Body.model_validate({"image": url}, context=Context()).image == url


@pytest.mark.parametrize(("url", "fault"), BAD)
def test_what_is_no_image(url: str, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        Body.model_validate({"image": url}, context=Context())


@pytest.mark.parametrize("url", [*GOOD, *(url for url, _ in BAD)])
def test_what_was_stored_is_not_judged_again(url: str) -> None:
    stored: Any = Body.model_validate({"image": url})
    assert stored.image == url
