"""Gates over HTTP, asked by the governor: real answers, odd ones, and none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from app.adapters.cel import Cel
from app.adapters.checked_network import CheckedNetwork
from app.adapters.http_gate import HttpGates
from app.adapters.outbound import BODY_BYTES, Outbound
from app.core.addresses import AddressRule
from app.core.governance.decision import MAX_REASON, Decision
from app.core.governance.governance import Governance, StoredGovernance, StoredPolicies
from app.services.governor import Governor
from tests.core.governance.calls import call
from tests.support.network import unsigned

pytestmark = pytest.mark.anyio

Answering = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def gate_at(answer: Answering) -> AsyncIterator[str]:
    """The address of a gate on loopback."""
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/gate"
    finally:
        await runner.cleanup()


async def decided(url: str, *, timeout_ms: int = 5_000, private: bool = True) -> Decision:
    outbound = Outbound(CheckedNetwork(AddressRule(private=private).admits), timeout_s=10)
    stored = StoredPolicies(gate={"http": {"url": url, "timeout_ms": timeout_ms}})
    try:
        governor = Governor(Cel(), HttpGates(outbound, unsigned()))
        return await governor.decide(
            call(arguments={"path": "/"}), Governance.of(StoredGovernance(project=stored))
        )
    finally:
        await outbound.aclose()


async def test_a_gate_is_told_of_the_call_and_its_word_counts() -> None:
    asked: list[Any] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.append((request.method, request.path, request.content_type, json.loads(await request.read())))
        return web.json_response({"effect": "deny", "reason": "r" * (MAX_REASON + 1), "later": True})

    async with gate_at(answer) as url:
        found = await decided(url)
    assert found == Decision("deny", "project.gate", "/http", "r" * MAX_REASON)
    assert asked == [("POST", "/gate", "application/json", call(arguments={"path": "/"}).wire())]


@pytest.mark.parametrize(
    ("effect", "expected"),
    [("allow", Decision("allow")), ("escalate", Decision("escalate", "project.gate", "/http"))],
)
async def test_a_gate_may_allow_or_leave_it_to_a_person(effect: str, expected: Decision) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"effect": effect}, status=201)

    async with gate_at(answer) as url:
        assert await decided(url) == expected


ALLOW = b'{"effect": "allow"}'


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, ALLOW, "HTTP 500"),
        (403, ALLOW, "HTTP 403"),
        (302, ALLOW, "redirects are not followed"),
        (204, b"", "no JSON"),
        (200, b"allow", "no JSON"),
        (200, b'"allow"', "no `effect`"),
        (200, b'["allow"]', "no `effect`"),
        (200, b"{}", "no `effect`"),
        (200, b'{"effect": "ALLOW"}', "no `effect`"),
        (200, b'{"effect": true}', "no `effect`"),
        (200, b'{"effect": "deny", "effect": "allow"}', "twice"),
        (200, b'{"effect": "allow", "reason": 5}', "`reason`"),
        (200, b'{"effect": "allow", "x": "' + b"y" * BODY_BYTES + b'"}', "too long"),
    ],
)
async def test_an_odd_answer_denies(status: int, body: bytes, why: str) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers={"Location": "/elsewhere"})

    async with gate_at(answer) as url:
        found = await decided(url)
    assert (found.effect, found.by, found.rule) == ("deny", "project.gate", "/http")
    assert why in (found.reason or ""), found.reason


async def test_a_slow_gate_denies() -> None:
    hold = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        await hold.wait()
        return web.Response(body=ALLOW)

    async with gate_at(answer) as url:
        found = await decided(url, timeout_ms=50)
        hold.set()
    assert (found.effect, found.reason) == (
        "deny",
        "the gate could not be asked: it gave no answer within 50 ms",
    )


async def test_a_gate_that_is_gone_denies() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=ALLOW)

    async with gate_at(answer) as url:
        pass
    assert (await decided(url)).effect == "deny"


async def test_a_gate_at_a_private_address_is_not_asked() -> None:
    asked = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(body=ALLOW)

    async with gate_at(answer) as url:
        for place in (url, url.replace("127.0.0.1", "localhost")):
            found = await decided(place, private=False)
            assert found.effect == "deny"
            assert "may not be reached" in (found.reason or "")
    assert asked == []
