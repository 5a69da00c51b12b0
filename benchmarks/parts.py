"""Parts of the hot path on their own, in microseconds of CPU for each token or chunk."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Final

from app.adapters.chat_completions.answer import AnswerReader
from app.adapters.chat_completions.profile import Profile
from app.adapters.http_client import model_client
from app.adapters.providers.openai import OpenAIProvider
from app.adapters.sse import SseDecoder
from app.core.chunks import TextDelta
from app.core.lifecycle.inputs import Begin, Opened
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import NO_RETRIES, NO_TIMEOUTS, LifecycleOptions
from app.core.prompt import Prompt, PromptMessage
from app.ports.provider import ModelEndpoint, Opening
from benchmarks.client import Address, LoadFailed
from benchmarks.fake_model import token_event
from benchmarks.figures import Figures, Scale

PER_PIECE: Final = (1, 16)
"""Chunks in one read from the network."""

_OPTIONS: Final = {
    "bare": LifecycleOptions(timeout=NO_TIMEOUTS, retry=NO_RETRIES, detect_zero_tokens=False),
    "everything": LifecycleOptions(events="full"),
}


def lifecycle(scale: Scale) -> Figures:
    """The stream machine, bare and with everything that exists switched on, on one endless line."""
    return {
        f"lifecycle.{name}_{length}_us": _cpu_us(
            lambda options=options, length=length: _stream(options, length),  # type: ignore[misc]
            each=length,
            at_least=scale.fed_at_least,
        )
        for name, options in _OPTIONS.items()
        for length in scale.lengths
    }


def decoding(scale: Scale) -> Figures:
    """Bytes to server-sent events, and bytes to chunks."""
    figures: Figures = {}
    events = [token_event("fake-t1000", number) for number in range(960)]
    for size in PER_PIECE:
        pieces = [b"".join(events[at : at + size]) for at in range(0, len(events), size)]

        def decode(pieces: list[bytes] = pieces) -> int:
            decoder = SseDecoder()
            return sum(1 for piece in pieces for _ in decoder.feed(piece))

        def read(pieces: list[bytes] = pieces) -> int:
            reader = AnswerReader(Profile())
            return sum(len(reader.feed(piece)) for piece in pieces)

        for name, work in {"sse": decode, "reader": read}.items():
            figures[f"decoding.{name}_{size}_us"] = _cpu_us(
                work, each=len(events), at_least=scale.fed_at_least
            )
    return figures


async def provider(fake: Address) -> Figures:
    """One long answer through the provider and its HTTP client, over a real socket."""
    chunks = 2_000
    model = f"fake-t{chunks}"
    endpoint = ModelEndpoint(model, "openai", model, f"http://{fake[0]}:{fake[1]}/v1")
    opening = Opening(endpoint, Prompt(messages=[PromptMessage("user", "hi")]))
    async with model_client() as client:
        openai = OpenAIProvider(client)
        await _read_answer(openai, opening)
        began = time.process_time()
        found = await _read_answer(openai, opening)
        spent_s = time.process_time() - began
    if found != chunks:
        raise LoadFailed(f"the provider gave {found} instead of {chunks} pieces of text")
    return {"decoding.provider_us": spent_s / chunks * 1e6}


async def _read_answer(openai: OpenAIProvider, opening: Opening) -> int:
    async with openai.open(opening) as batches:
        return sum([sum(isinstance(chunk, TextDelta) for chunk in batch) async for batch in batches])


def _stream(options: LifecycleOptions, tokens: int) -> int:
    machine = StreamMachine(options, models=1, draw=lambda: 0.5)
    machine.feed(Begin(), 0.0)
    machine.feed(Opened("openai"), 1.0)
    deltas = cycle([TextDelta(f"tok{number} ") for number in range(64)])
    effects = 0
    for number, delta in enumerate(islice(deltas, tokens)):
        effects += len(machine.feed(delta, 1.0 + number))
    return effects


def _cpu_us(work: Callable[[], int], *, each: int, at_least: int) -> float:
    """CPU microseconds for each of the `each` items of one call, over enough calls."""
    calls = max(1, at_least // each)
    began = time.process_time()
    for _ in range(calls):
        if work() < each:
            raise LoadFailed("a part gave less than it was given")
    return (time.process_time() - began) / (calls * each) * 1e6
