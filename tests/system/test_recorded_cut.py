"""Whole answers of real servers on every wire, cut at random places, as a client of the service gets them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.support import messages_wire
from tests.support.heard import ONCE, hear, served
from tests.support.model_server import Attempt, Framing, ModelServer
from tests.support.service import Service
from tests.support.streams import STREAMS, Stream, on_messages
from tests.system.test_recorded import PAUSE_S, all_of, check

pytestmark = pytest.mark.anyio

CUTTINGS = int(os.environ.get("BRANCHLINE_CUTTINGS", "3"))
"""How often each answer is cut in another way; a hundred take twenty minutes."""
MOST_CUTS = 30
FRAMINGS: list[Framing] = ["eof", "chunked", "length"]

SINGLE: dict[str, Any] = {**ONCE, "max_model_calls": 1}
MESSAGES = list(on_messages())
PAUSED = [stream for stream in MESSAGES if b'"pause_turn"' in stream.body]


def cut(body: bytes, draw: Random) -> Iterator[bytes | float]:
    """The body in pieces, some of them written together and some read one by one."""
    places = sorted(draw.sample(range(1, len(body)), min(draw.randint(1, MOST_CUTS), len(body) - 1)))
    for start, end in zip([0, *places], [*places, len(body)], strict=True):
        yield body[start:end]
        if draw.random() < 0.7:
            yield PAUSE_S


@pytest.mark.parametrize("stream", [*STREAMS, *MESSAGES], ids=lambda stream: stream.file.stem)
async def test_cut_at_random_places(service: Service, model_server: ModelServer, stream: Stream) -> None:
    async def cut_so(seed: int) -> None:
        draw = Random(f"{stream.file.stem} {seed}")
        attempt = Attempt(list(cut(stream.body, draw)), framing=draw.choice(FRAMINGS))
        model = await served(service, model_server, [attempt], provider=stream.provider)
        check(await hear(service, model, lifecycle=SINGLE), stream)

    await all_of(*[partial(cut_so, seed) for seed in range(CUTTINGS)])


def blocks_of(body: bytes) -> list[dict[str, Any]]:
    """The blocks of an answer on the Messages wire, put together without the service."""
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    for line in body.decode().split("\n"):
        event = json.loads(line[5:]) if line.startswith("data:") else {}
        match event.get("type"):
            case "content_block_start":
                blocks[event["index"]] = event["content_block"]
            case "content_block_delta":
                block, (_, member) = blocks[event["index"]], event["delta"].items()
                if member[0] == "partial_json":
                    inputs[event["index"]] = inputs.get(event["index"], "") + member[1]
                else:
                    block[member[0]] += member[1]
    for index, text in inputs.items():
        blocks[index]["input"] = json.loads(text) if text else {}
    return [block for _, block in sorted(blocks.items())]


@pytest.mark.parametrize("stream", PAUSED, ids=lambda stream: stream.file.stem)
async def test_a_paused_answer_is_given_back_block_by_block_and_goes_on(
    service: Service, model_server: ModelServer, stream: Stream
) -> None:
    rest = Attempt(messages_wire.text(" That is", " all."))
    first = Attempt(list(cut(stream.body, Random(1))))
    model = await served(service, model_server, [first, rest], provider="anthropic")
    heard = await hear(service, model)
    assert (heard.run["status"], heard.run["finish_reason"], heard.run["attempts"]) == (
        "completed",
        "stop",
        2,
    )
    assert heard.text.endswith(" That is all.")
    assert len(heard.text) == stream.says["text_chars"] + len(" That is all.")
    _, again = [request.body for request in model_server.requests if request.model == model]
    assert again["messages"][-1] == {"role": "assistant", "content": blocks_of(stream.body)}
