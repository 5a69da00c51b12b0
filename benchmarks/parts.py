"""Parts of the hot path on their own, in CPU time: for each token or chunk, or for one prompt."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Final
from uuid import UUID

from app.adapters.chat_completions.answer import AnswerReader
from app.adapters.chat_completions.profile import Profile
from app.adapters.chat_completions.request import body_of
from app.adapters.http_client import model_client
from app.adapters.providers.openai import OpenAIProvider
from app.adapters.sse import SseDecoder
from app.core.chunks import TextDelta
from app.core.drift.monitor import DriftOptions
from app.core.guardrails.presets import rules_of
from app.core.json_text import dumps
from app.core.lifecycle.inputs import Begin, Opened
from app.core.lifecycle.machine import StreamMachine
from app.core.lifecycle.options import NO_RETRIES, NO_TIMEOUTS, ContinuationOptions, LifecycleOptions
from app.core.lifecycle.table import State
from app.core.messages import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantContent,
    Content,
    InstructionContent,
    ModelToolCall,
)
from app.core.operate.asking import ask_for
from app.core.operate.history import History, RawMessage
from app.core.operate.params import OperateParams
from app.core.operate.prompt import build_prompt
from app.core.prompt import Prompt, PromptMessage, ToolSchema
from app.ports.provider import ModelEndpoint, Opening
from benchmarks.client import Address, LoadFailed
from benchmarks.fake_model import token_event
from benchmarks.figures import Figures, Scale, p50

PER_PIECE: Final = (1, 16)
"""Chunks in one read from the network."""

_EVERYTHING: Final = LifecycleOptions(
    guardrails=rules_of("recommended"),
    drift=DriftOptions(),
    continuation=ContinuationOptions(checkpoint_every=5),
)
_STREAMS: Final = {
    "bare": (LifecycleOptions(timeout=NO_TIMEOUTS, retry=NO_RETRIES, detect_zero_tokens=False), "line"),
    "everything": (_EVERYTHING, "line"),
    "everything_lines": (_EVERYTHING, "lines"),
    "everything_json": (_EVERYTHING, "json"),
}
"""What is switched on, and what the model writes."""

_TEXT: Final = (
    "the tide turns twice a day and carries silt into the narrow bay where mussels grow on old ropes while "
    "gulls wait for boats that come home late in autumn when fog hides the low light of the harbour"
)
_WORDS: Final = _TEXT.split()
_TOOL: Final = ToolSchema("add", "Add two numbers.", {"type": "object"})


def lifecycle(scale: Scale) -> Figures:
    """The stream machine, bare and with rules, detectors, checkpoints and limits."""
    figures: Figures = {}
    for name, (options, kind) in _STREAMS.items():
        for length in scale.lengths:
            deltas = deltas_of(length, kind)
            figures[f"lifecycle.{name}_{length}_us"] = _cpu_us(
                lambda options=options, deltas=deltas: _stream(options, deltas),  # type: ignore[misc]
                each=length,
                at_least=scale.fed_at_least,
            )
    return figures


def deltas_of(tokens: int, kind: str) -> list[TextDelta]:
    """Words in a random order that is the same each time: one endless line, lines, or a list of JSON."""
    chance = Random(7)
    out: list[TextDelta] = []
    for number in range(tokens):
        word = chance.choice(_WORDS) + (str(chance.randrange(1_000)) if number % 9 == 0 else "")
        if kind == "json":
            out.append(TextDelta(('","' if number else '["') + word))
        else:
            out.append(TextDelta(word + (".\n" if kind == "lines" and number % 14 == 13 else " ")))
    return out


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


def prompts(scale: Scale) -> Figures:
    """The request of the next turn on a long branch, in milliseconds: known from the turn before, and not."""
    turn = 4
    said = conversation(scale.branch + turn)
    endpoint = ModelEndpoint("m", "openai", "m")
    params = OperateParams(instruction="go on", chat_model="m", actions=True)
    asking = ask_for(params, [_TOOL], takes_tools=True, takes_schema=True)

    def request(history: History) -> int:
        opening = Opening(endpoint, build_prompt(history, params, asking, system="Be brief."))
        return len(body_of(opening, Profile()))

    began = time.process_time()
    known = History(said[:-turn])
    request(known)
    cold_s = time.process_time() - began
    warm_s = []
    for _ in range(scale.prompts):
        began = time.process_time()
        if request(known.grown(said[-turn:])) < scale.branch * len(_TEXT) / 2:
            raise LoadFailed("a request lacks what was said")
        warm_s.append(time.process_time() - began)
    return {"prompt.cold_ms": cold_s * 1000, "prompt.warm_ms": p50(warm_s) * 1000}


def conversation(messages: int) -> list[RawMessage]:
    """Turns of an instruction, an answer and a tool call with its result, as they are stored."""
    out: list[RawMessage] = []
    for number in range(0, messages, 4):
        request = str(UUID(int=number + 2))
        arguments = {"a": number, "b": 2}
        contents: tuple[Content, ...] = (
            InstructionContent(f"{number}: {_TEXT}"),
            AssistantContent(_TEXT, tool_calls=[ModelToolCall("call_0", "add", arguments)]),
            ActionRequestContent("add", arguments, provider_call_id="call_0"),
            ActionResponseContent("add", arguments, number + 2, request),
        )
        for place, content in enumerate(contents, start=number):
            out.append(RawMessage(UUID(int=place), content.kind, dumps(content.wire())))
    return out


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


def _stream(options: LifecycleOptions, deltas: list[TextDelta]) -> int:
    machine = StreamMachine(options, models=1, draw=lambda: 0.5, timer=time.perf_counter)
    machine.feed(Begin(), 0.0)
    machine.feed(Opened("openai"), 1.0)
    effects = 0
    for number, delta in enumerate(deltas):
        effects += len(machine.feed(delta, 1.0 + number))
    if machine.state is not State.STREAMING:
        raise LoadFailed("a rule or a detector rejected the text")
    return effects


def _cpu_us(work: Callable[[], int], *, each: int, at_least: int) -> float:
    """CPU microseconds for each of the `each` items of one call, over enough calls."""
    calls = max(1, at_least // each)
    began = time.process_time()
    for _ in range(calls):
        if work() < each:
            raise LoadFailed("a part gave less than it was given")
    return (time.process_time() - began) / (calls * each) * 1e6
