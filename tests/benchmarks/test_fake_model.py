"""The fake model and the load client, held against each other over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks.client import Address, LoadFailed, load, request
from benchmarks.fake_model import Conversation, Manner
from benchmarks.targets import Direct

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def fake() -> AsyncIterator[Direct]:
    server = await asyncio.get_running_loop().create_server(Conversation, "127.0.0.1", 0)
    async with server:
        yield Direct(server.sockets[0].getsockname())


@pytest.mark.parametrize(
    ("name", "manner"),
    [
        ("fake", Manner()),
        ("fake-t3", Manner(tokens=3)),
        ("fake-t1-f250-d20", Manner(tokens=1, first_s=0.25, each_s=0.02)),
        ("fake-c2-b8", Manner(calls=2, per_write=8)),
    ],
)
def test_the_name_says_the_manner(name: str, manner: Manner) -> None:
    assert Manner.of(name) == manner


@pytest.mark.parametrize("model", ["fake-t5", "fake-t5-b2", "fake-t5-d1", "fake-t5-f1-d1"])
async def test_every_token_comes_once_on_kept_connections(model: str) -> None:
    async with fake() as direct:
        asked = [direct.question(model, stream=True) for _ in range(7)]
        outcome = await load(direct.address, asked, clients=2, mark=direct.mark)
        assert len(outcome.answers) == 7
        for answer in outcome.answers:
            direct.check(answer, tokens=5, stream=True)
            assert answer.body.endswith(b"data: [DONE]\n\n")
            assert answer.began < answer.first <= answer.ended
            with pytest.raises(LoadFailed):
                direct.check(answer, tokens=6, stream=True)


async def test_a_tool_is_called_where_one_is_offered() -> None:
    body = {"model": "fake-t1-c2", "stream": True, "tools": [{"function": {"name": "add"}}]}
    async with fake() as direct:
        outcome = await load(direct.address, [_asking(direct.address, body)], clients=1)
    assert outcome.answers[0].body.count(b'"name":"add"') == 2
    assert b'"finish_reason":"tool_calls"' in outcome.answers[0].body


async def test_a_load_fails_with_its_connection() -> None:
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()
        with pytest.raises(LoadFailed):
            await load(address, [_asking(address, {})], clients=1)


def _asking(address: Address, body: dict[str, object]) -> bytes:
    return request(address, "POST", "/v1/chat/completions", body)
