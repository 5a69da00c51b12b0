"""Hooks that are asked by a post: what each answer means, and where nothing is ever sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from app.adapters.checked_network import CheckedNetwork
from app.adapters.hooks.http import HttpHooks
from app.adapters.outbound import BODY_BYTES
from app.core.addresses import AddressRule
from app.ports.hooks import HookBlocked, Stop, ToolHookEvent
from tests.support.hooks import BEFORE, FAILED, SUCCEEDED
from tests.support.network import ANYWHERE, unsigned
from tests.support.receiver import Receiver, Reply

pytestmark = pytest.mark.anyio


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as made:
        yield made


@pytest.fixture
async def hooks() -> AsyncIterator[HttpHooks]:
    async with aclosing(HttpHooks(ANYWHERE, unsigned())) as made:
        yield made


LONG = json.dumps({"stop": True, "reason": "long", "more": "x" * BODY_BYTES}).encode()


@pytest.mark.parametrize("event", [BEFORE, SUCCEEDED, FAILED], ids=lambda event: str(event.point))
async def test_the_event_is_posted_as_json(
    receiver: Receiver, hooks: HttpHooks, event: ToolHookEvent
) -> None:
    await hooks.at(receiver.url("/in")).call(event)
    (request,) = receiver.received
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.body) == event.wire()


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (Reply(200), None),
        (Reply(204), None),
        (Reply(200, body=b"ok"), None),
        (Reply(200, body=b"[]"), None),
        (Reply(200, body=b'{"stop": false}'), None),
        (Reply(200, body=b'{"stop": "yes"}'), None),
        (Reply(200, body=b'{"reason": "not looked at"}'), None),
        (Reply(202, body=b'{"stop": true, "more": 1}'), Stop()),
        (Reply(200, body=LONG), None),
    ],
)
async def test_a_good_answer_passes_or_stops(
    receiver: Receiver, hooks: HttpHooks, reply: Reply, answer: Stop | None
) -> None:
    receiver.replies["/in"] = [reply]
    assert await hooks.at(receiver.url("/in")).call(BEFORE) == answer


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(403, body=b'{"reason": "not on Fridays"}'), "not on Fridays"),
        (Reply(403, body=b'{"stop": true}'), "HTTP 403"),
        (Reply(403, body=b'{"reason": ""}'), "HTTP 403"),
        (Reply(403, body=b'{"reason": 3}'), "HTTP 403"),
        (Reply(500, body=b"Traceback: a secret"), "HTTP 500"),
        (Reply(500, body=LONG), "HTTP 500"),
        (Reply(302, {"Location": "/there"}), "HTTP 302: redirects are not followed"),
    ],
)
async def test_any_other_answer_blocks(
    receiver: Receiver, hooks: HttpHooks, reply: Reply, reason: str
) -> None:
    receiver.replies["/in"] = [reply]
    with pytest.raises(HookBlocked) as blocked:
        await hooks.at(receiver.url("/in")).call(BEFORE)
    assert blocked.value.reason == reason
    assert [request.path for request in receiver.received] == ["/in"]


async def test_nobody_there_blocks(hooks: HttpHooks) -> None:
    async with Receiver() as gone:
        url = gone.url("/in")
    with pytest.raises(HookBlocked, match="ConnectError"):
        await hooks.at(url).call(BEFORE)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_private_address_is_not_reached_unless_it_is_allowed(receiver: Receiver, host: str) -> None:
    url = receiver.url("/in").replace("127.0.0.1", host)
    async with aclosing(HttpHooks(CheckedNetwork(AddressRule().admits), unsigned())) as strict:
        with pytest.raises(HookBlocked, match="may not be reached"):
            await strict.at(url).call(BEFORE)
    assert receiver.received == []
    loopback = CheckedNetwork(AddressRule(allowed=["127.0.0.0/8"]).admits)
    async with aclosing(HttpHooks(loopback, unsigned())) as allowing:
        assert await allowing.at(url).call(BEFORE) is None


async def test_text_that_no_json_can_hold_is_sent_with_replacements(
    receiver: Receiver, hooks: HttpHooks
) -> None:
    await hooks.at(receiver.url("/in")).call(BEFORE.failed("E", "a\ud800b", 1.0))
    (request,) = receiver.received
    assert json.loads(request.body)["error"]["message"] == "a\ufffdb"
