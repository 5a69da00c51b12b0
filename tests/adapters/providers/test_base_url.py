"""Base URLs that cannot be used are refused when a model is registered, never found out by a crash."""

from __future__ import annotations

import pytest

from app.adapters.wire_options import url_below
from app.core.errors import Invalid


@pytest.mark.parametrize(
    "base_url",
    [
        *("http://xn--a.com/v1", "http://xn--.com", "http://xn--zzzzzz.com"),
        *("http://\N{RIGHT-TO-LEFT OVERRIDE}.com", "http://[::1", "ftp://models.example", "/v1", "http://"),
        *("http://models.example:99999", "http://key@models.example", "http://models.example/#v1"),
    ],
)
def test_a_base_url_that_means_no_address_is_refused(base_url: str) -> None:
    with pytest.raises(Invalid) as caught:
        url_below(base_url, "/chat")
    assert [error.pointer for error in caught.value.errors] == ["/base_url"]


def test_a_path_goes_below_and_a_query_stays() -> None:
    assert str(url_below("http://m.example/v1/?a=1", "/chat")) == "http://m.example/v1/chat?a=1"
    assert url_below("http://xn--mller-kva.example", "/chat").host == "müller.example"
