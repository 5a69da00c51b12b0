"""Posts to webhook endpoints: what they hold, how they are signed, and when they are tried again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from app.core.webhooks import (
    GONE,
    MAX_RETRY_AFTER_S,
    PAUSES_S,
    Answer,
    headers,
    pause_s,
    post_body,
    post_id,
    secret_of,
)

ENDPOINT, RUN = UUID(int=1), UUID(int=2)
SECRET, OTHER = secret_of(b"s" * 32), secret_of(b"o" * 32)


def now_s() -> int:
    return int(datetime.now(UTC).timestamp())


@given(body=st.binary(max_size=200))
def test_a_signature_is_one_that_standard_webhooks_knows(body: bytes) -> None:
    said = headers("msg_1", now_s(), b'{"a":' + json.dumps(body.hex()).encode() + b"}", [SECRET])
    Webhook(SECRET).verify(b'{"a":' + json.dumps(body.hex()).encode() + b"}", said)


def test_another_secret_or_body_does_not_fit() -> None:
    said = headers("msg_1", now_s(), b"{}", [SECRET])
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(b"{}", said)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(b"[]", said)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(b"{}", {**said, "webhook-id": "msg_2"})


def test_with_two_secrets_either_fits() -> None:
    said = headers("msg_1", now_s(), b"{}", [SECRET, OTHER])
    Webhook(SECRET).verify(b"{}", said)
    Webhook(OTHER).verify(b"{}", said)


def test_a_body() -> None:
    body = post_body(
        RUN,
        None,
        callbacks=['{"a":1}', '{"b":2}'],
        events=[],
        last_seq=7,
        ended=True,
        at_ms=1_796_000_000_123,
    )
    assert json.loads(body) == {
        "type": "run.callbacks",
        "timestamp": "2026-11-30T00:53:20.123Z",
        "data": {
            "run_id": str(RUN),
            "branch_id": None,
            "callbacks": [{"a": 1}, {"b": 2}],
            "events": [],
            "last_seq": 7,
            "ended": True,
        },
    }


def test_an_id_is_that_of_an_endpoint_a_run_and_a_place() -> None:
    ids = {post_id(UUID(int=e), UUID(int=r), seq) for e in (1, 2) for r in (1, 2) for seq in (1, 2, 256)}
    assert len(ids) == 12
    assert post_id(ENDPOINT, RUN, 5) == post_id(ENDPOINT, RUN, 5)
    assert all(id.startswith("msg_") and "." not in id for id in ids)


@pytest.mark.parametrize(
    ("answer", "failures", "expected"),
    [
        (Answer(500), 1, PAUSES_S[0]),
        (Answer(400), 1, PAUSES_S[0]),
        (Answer(302), 1, PAUSES_S[0]),
        (Answer(None, "no answer in time"), 2, PAUSES_S[1]),
        (Answer(503), len(PAUSES_S), PAUSES_S[-1]),
        (Answer(503), len(PAUSES_S) + 1, None),
        (Answer(429, None, 60_000), 1, 60.0),
        (Answer(429, None, 1_000), 1, PAUSES_S[0]),
        (Answer(503, None, 10**9), 1, MAX_RETRY_AFTER_S),
        (Answer(GONE), 1, None),
        (Answer(GONE, None, 1_000), 1, None),
    ],
)
def test_the_pause_after_a_failure(answer: Answer, failures: int, expected: float | None) -> None:
    assert not answer.delivered
    assert pause_s(answer, failures, 0.0) == expected


def test_what_failed_together_does_not_come_back_together() -> None:
    pauses = [pause_s(Answer(500), 1, draw / 10) for draw in range(11)]
    assert None not in pauses
    assert len(set(pauses)) == 11
    assert pauses == sorted(pauses)  # type: ignore[type-var]
    assert pauses[0] == PAUSES_S[0]


def test_only_2xx_is_a_delivery() -> None:
    tried = (100, 199, 200, 204, 299, 300, 410)
    assert [status for status in tried if Answer(status).delivered] == [200, 204, 299]


def test_the_tries_are_spread_over_days() -> None:
    assert list(PAUSES_S) == sorted(PAUSES_S)
    assert 2 * 86_400 <= sum(PAUSES_S) <= 5 * 86_400
