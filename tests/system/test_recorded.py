"""Whole answers of real servers, as a client of the service gets to know them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.support.heard import Heard, hear, served
from tests.support.model_server import Attempt, Framing, ModelServer, Then
from tests.support.service import Service
from tests.support.streams import STREAMS, Stream, own, recorded, smallest

pytestmark = pytest.mark.anyio

AT_ONCE = 12
"""Runs that go on at the same time."""
STRIDE = 24
"""Bytes between two cuts of one body; one run for each place where the first cut can be."""
PAUSE_S = 0.001
"""Long enough for what was written to be read on its own, by the same event loop."""

every_stream = pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.file.stem)
the_real_ones = pytest.mark.parametrize(
    "stream", list(recorded()) or list(own()), ids=lambda stream: stream.file.stem
)
the_smallest = pytest.mark.parametrize("stream", smallest(3), ids=lambda stream: stream.file.stem)


async def all_of(*works: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Do them all, some at the same time; what they give, in order."""
    room = asyncio.Semaphore(AT_ONCE)

    async def in_turn(work: Callable[[], Awaitable[Any]]) -> Any:
        async with room:
            return await work()

    return list(await asyncio.gather(*map(in_turn, works)))


def check(heard: Heard, stream: Stream) -> None:
    """Compare what the service made of an answer with what the answer says."""
    says, run = stream.says, heard.run
    assert heard.text == says.get("text", heard.text)
    if "text_sha256" in says:
        assert len(heard.text) == says["text_chars"]
        assert hashlib.sha256(heard.text.encode()).hexdigest() == says["text_sha256"]
    assert run["finish_reason"] == says.get("finish")
    assert list((run["usage"] or {}).values())[:2] == says.get(
        "usage", list((run["usage"] or {}).values())[:2]
    )
    code = expected_code(stream)
    assert heard.code == code
    if code is None:
        check_completed(heard, says)
    else:
        assert run["status"] == "failed"
        assert heard.messages == []
        assert (run["result"], run["partial_text"]) == (None, heard.text or None)
    if code == "PROVIDER_ERROR":
        assert heard.detail["provider_code"] == says["error_code"]
        assert heard.detail["status"] == says.get("status", heard.detail["status"])
    if code == "MODEL_REFUSAL":
        assert heard.detail["refusal"] == says["refusal"]


def check_completed(heard: Heard, says: dict[str, Any]) -> None:
    """The part that concerns answers that are complete."""
    assert heard.run["status"] == "completed"
    assert heard.run["result"] == heard.text
    wanted = says.get("tool_calls", [])
    assert [(name, arguments) for _, name, arguments in heard.calls] == [
        (name, json.loads(arguments)) for _, name, arguments in wanted
    ]
    assert all(id in (None, call[0]) for (id, _, _), call in zip(wanted, heard.calls, strict=True))
    assert [message["kind"] for message in heard.messages] == ["instruction", "assistant_response"]
    answer = heard.answer
    assert answer is not None
    assert answer["text"] == heard.text
    assert [(c["id"], c["name"], c["arguments"]) for c in answer["tool_calls"]] == heard.calls
    reasoning = answer["reasoning"] or ""
    assert reasoning == says.get("reasoning", reasoning)
    assert len(reasoning) == says.get("reasoning_chars", len(reasoning))


def expected_code(stream: Stream) -> str | None:
    """How a run that gets this answer ends, by what the answer says."""
    says = stream.says
    if says.get("error_code") is not None:
        return "PROVIDER_ERROR"
    if says.get("refusal"):
        return "MODEL_REFUSAL"
    return None if says.get("end_mark") else "STREAM_TRUNCATED"


@every_stream
async def test_replayed(service: Service, model_server: ModelServer, stream: Stream) -> None:
    framing: Framing = ("eof", "chunked", "length")[STREAMS.index(stream) % 3]
    attempt = Attempt([stream.body], framing=framing, write_size=700)
    check(await hear(service, await served(service, model_server, [attempt])), stream)


@the_real_ones
async def test_replayed_with_other_line_ends(
    service: Service, model_server: ModelServer, stream: Stream
) -> None:
    body = stream.body.replace(b"\n", b"\r\n")
    model = await served(service, model_server, [Attempt([body], write_size=501)])
    check(await hear(service, model), stream)


def pieces(body: bytes, first: int) -> Iterable[bytes | float]:
    """The body cut after `first` bytes and then regularly, with a pause at each cut."""
    start = 0
    for end in (*range(first, len(body), STRIDE), len(body)):
        yield body[start:end]
        yield PAUSE_S
        start = end


@the_smallest
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
async def test_cut_at_every_byte(
    service: Service, model_server: ModelServer, stream: Stream, line_end: bytes
) -> None:
    body = stream.body.replace(b"\n", line_end)
    model = await served(
        service, model_server, [Attempt(list(pieces(body, first))) for first in range(1, STRIDE + 1)]
    )
    all_heard = await all_of(*[lambda: hear(service, model)] * STRIDE)
    assert sum(request.model == model for request in model_server.requests) == STRIDE
    for heard in all_heard:
        check(heard, stream)
    assert len({json.dumps(untimed(heard), sort_keys=True) for heard in all_heard}) == 1


def untimed(heard: Heard) -> list[Any]:
    """The events, without ids and times."""
    metas = (
        {k: v for k, v in e["meta"].items() if k not in ("duration", "startTs", "endTs")}
        for e in heard.events
    )
    return [(event["type"], meta) for event, meta in zip(heard.events, metas, strict=True)]


@the_real_ones
async def test_closed_anywhere(service: Service, model_server: ModelServer, stream: Stream) -> None:
    """A connection that ends in good order before the answer does."""
    body, whole = stream.body, await whole_of(service, model_server, stream)
    drawn = Random(stream.file.stem).sample(range(3, len(body)), 7)
    cuts = sorted({len(body) - 1, *drawn})

    async def cut_after(size: int) -> None:
        model = await served(service, model_server, [Attempt([body[:size]])])
        heard = await hear(service, model)
        assert heard.code == code_of_cut(body[:size], whole), size
        assert whole.text.startswith(heard.text)
        if heard.code is None:
            assert (heard.text, heard.calls) == (whole.text, whole.calls)
        else:
            assert heard.messages == []
            assert heard.run["partial_text"] == (heard.text or None)

    await all_of(*[partial(cut_after, size) for size in cuts])


@the_real_ones
async def test_broken_off_anywhere(service: Service, model_server: ModelServer, stream: Stream) -> None:
    """A connection that is reset, or closed within a chunk: only the end mark counts as an end."""
    body, whole = stream.body, await whole_of(service, model_server, stream)

    async def cut_after(size: int, then: Then) -> None:
        # The pause lets what was sent be read: a reset discards the rest.
        attempt = Attempt([body[:size], PAUSE_S], framing="chunked", cut=True, then=then)
        heard = await hear(service, await served(service, model_server, [attempt]))
        is_over = b"[DONE]" in body[:size] or has_error(body[:size])
        assert heard.code == (code_of_cut(body[:size], whole) if is_over else "NETWORK_ERROR"), size

    drawn = Random(stream.file.stem).sample(range(len(body)), 4)
    ways: list[Then] = ["reset", "close"] * 2
    await all_of(*[partial(cut_after, size, then) for size, then in zip(drawn, ways, strict=True)])


@pytest.mark.parametrize("start", [b"", b"d", b"da", b":", b": ", b"\n", b"\r\n", b"\xef\xbb", b"event"])
async def test_closed_after_a_byte_or_two(service: Service, model_server: ModelServer, start: bytes) -> None:
    heard = await hear(service, await served(service, model_server, [Attempt([start])]))
    assert heard.code == "STREAM_TRUNCATED"
    assert (heard.run["partial_text"], heard.messages) == (None, [])


async def whole_of(service: Service, server: ModelServer, stream: Stream) -> Heard:
    """What the service makes of the whole answer."""
    return await hear(service, await served(service, server, [Attempt([stream.body])]))


def objects(body: bytes) -> Iterable[Any]:
    """The JSON objects of a body that may be cut anywhere; True for the end mark."""
    for line in body.split(b"\n"):
        if line.startswith(b"data:"):
            with suppress(ValueError):
                yield True if line[5:].strip() == b"[DONE]" else json.loads(line[5:])


def has_error(body: bytes) -> bool:
    """Whether the body reports an error; an event of that name does so by its first word."""
    named = re.search(rb"^event: error\ndata", body, re.MULTILINE)
    return named is not None or any(said is not True and "error" in said for said in objects(body))


def has_end(body: bytes) -> bool:
    """Whether the body holds an end mark, or a reason to stop."""
    return any(
        said is True or any(c.get("finish_reason") for c in said["choices"] if c.get("index") == 0)
        for said in objects(body)
    )


def code_of_cut(body: bytes, whole: Heard) -> str | None:
    """How a run must end that got no more than this; `whole` is what becomes of the whole answer."""
    if has_error(body):
        return "PROVIDER_ERROR"
    if not has_end(body):
        return "STREAM_TRUNCATED"
    # Where an error followed, the reason to stop was the token limit, and nothing had been said.
    return "OUTPUT_TRUNCATED" if whole.code == "PROVIDER_ERROR" else whole.code
