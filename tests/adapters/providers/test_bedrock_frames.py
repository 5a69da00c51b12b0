"""Frames of an event stream, cut and damaged anywhere, and signatures held against published ones."""

from __future__ import annotations

from datetime import UTC, datetime
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.bedrock_converse.frames import BadFrame, Frame, FrameDecoder, FrameTooLarge
from app.adapters.bedrock_converse.signature import Credentials, Scope, signed
from tests.support.bedrock_wire import delta, end, event, frame

PUBLISHED = (
    "0000003d0000002007fd83960c636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e"
    "7b27666f6f273a27626172277d8d9c08b1"
)
"""A frame as the format's own examples have it."""


def decoded(*pieces: bytes, most: int = 1 << 20) -> list[Frame]:
    decoder = FrameDecoder(most)
    return [found for piece in pieces for found in decoder.feed(piece)]


def test_a_published_frame() -> None:
    expected = Frame({"content-type": "application/json"}, b"{'foo':'bar'}")
    assert decoded(bytes.fromhex(PUBLISHED)) == [expected]
    assert frame(expected.headers, expected.payload).hex() == PUBLISHED


WHOLE = event("messageStart", role="assistant") + delta(0, text="tide 🌊") + end("end_turn", inputTokens=1)


@given(st.lists(st.integers(0, len(WHOLE)), max_size=8))
def test_cuts_make_no_difference(places: list[int]) -> None:
    ends = sorted(places)
    pieces = [WHOLE[a:b] for a, b in zip([0, *ends], [*ends, len(WHOLE)], strict=True)]
    assert decoded(*pieces) == decoded(WHOLE)
    assert len(decoded(WHOLE)) == 4


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_no_changed_byte_is_taken_for_another_message(place: int, change: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[place] ^= change
    decoder = FrameDecoder(1 << 20)
    found: list[Frame] = []
    with pytest.raises((BadFrame, FrameTooLarge)):
        found.extend(decoder.feed(bytes(damaged)))
    assert found == decoded(WHOLE)[: len(found)]


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_none(raw: bytes) -> None:
    try:
        assert decoded(raw) == []
    except (BadFrame, FrameTooLarge):
        assert len(raw) >= 12


def test_headers_of_every_type_are_passed_over() -> None:
    odd = b"".join(
        bytes([1]) + name + bytes([kind]) + b"\0" * size
        for name, kind, size in [
            (b"a", 0, 0), (b"b", 1, 0), (b"c", 2, 1), (b"d", 3, 2), (b"e", 4, 4), (b"f", 5, 8), (b"g", 8, 8),
            (b"h", 9, 16), (b"i", 6, 2),
        ]
    )  # fmt: skip
    plain = frame({"j": "k"}, b"x")
    start = (len(plain) + len(odd)).to_bytes(4) + (6 + len(odd)).to_bytes(4)
    raw = start + crc32(start).to_bytes(4) + odd + plain[12:18] + b"x"
    assert decoded(raw + crc32(raw).to_bytes(4)) == [Frame({"j": "k"}, b"x")]


def test_a_frame_that_is_too_long_is_refused_before_it_is_kept() -> None:
    with pytest.raises(FrameTooLarge):
        decoded(delta(0, text="x" * 2_000)[:12], most=1_024)


NOW = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflf"
    "KD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd"
    "8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3i"
    "SIlTJabIQwj2ICCR/oLxBA=="
)
"""Of the published suite, as is all else here."""


@pytest.mark.parametrize(
    ("method", "path", "more", "token", "names", "signature"),
    [
        ("GET", "/", {}, None, "host;x-amz-date",
         "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", {}, None, "host;x-amz-date",
         "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        ("GET", "/ሴ", {}, None, "host;x-amz-date",
         "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
        ("GET", "/example space/", {}, None, "host;x-amz-date",
         "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"),
        ("GET", "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", {}, None,
         "host;x-amz-date", "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"),
        ("POST", "/", {"My-Header1": "VALUE1"}, None, "host;my-header1;x-amz-date",
         "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"),
        ("GET", "/", {"My-Header1": " value1", "My-Header2": ' "a   b   c"'}, None,
         "host;my-header1;my-header2;x-amz-date",
         "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"),
        ("POST", "/", {}, TOKEN, "host;x-amz-date;x-amz-security-token",
         "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"),
    ],
)  # fmt: skip
def test_published_signatures(
    method: str, path: str, more: dict[str, str], token: str | None, names: str, signature: str
) -> None:
    credentials = Credentials("AKIDEXAMPLE", SECRET, token)
    headers = {"Host": "example.amazonaws.com", **more}
    made = signed(credentials, Scope("us-east-1", "service"), NOW, method, path, headers, b"")
    assert made["X-Amz-Date"] == "20150830T123600Z"
    assert made["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={names}, Signature={signature}"
    )


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("AKIDEXAMPLEEXAMPLE:" + SECRET, Credentials("AKIDEXAMPLEEXAMPLE", SECRET)),
        (f"ASIAEXAMPLEEXAMPLE:{SECRET}:{TOKEN}", Credentials("ASIAEXAMPLEEXAMPLE", SECRET, TOKEN)),
        ("bedrock-api-key-YmVkcm9jaw==", None),
        ("akid:secret", None),
        ("", None),
    ],
)
def test_keys_of_both_kinds(key: str, expected: Credentials | None) -> None:
    found = Credentials.of(key)
    assert found == expected
    assert SECRET not in repr(found)
