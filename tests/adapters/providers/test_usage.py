"""What each wire says of tokens, in one sense: wholes with their parts, told when the answer is all there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from app.adapters.anthropic_messages.answer import AnswerReader as MessagesReader
from app.adapters.anthropic_messages.profile import MessagesProfile
from app.adapters.bedrock_converse.answer import AnswerReader as BedrockReader
from app.adapters.chat_completions.answer import AnswerReader as ChatReader
from app.adapters.chat_completions.profile import Profile
from app.adapters.gemini_content.answer import AnswerReader as GeminiReader
from app.core.chunks import Chunk, UsageReport
from app.core.lifecycle.effects import AttemptEnded
from app.core.lifecycle.inputs import Begin, Closed, Opened
from app.core.lifecycle.machine import StreamMachine
from tests.core.lifecycle.scripts import QUICK
from tests.support import bedrock_wire, chat_wire, messages_wire
from tests.support.chat_wire import DONE, delta, event
from tests.support.streams import STREAMS, Stream, on_messages

SSE = "text/event-stream"
MAKE: dict[str, Callable[[], Any]] = {
    "chat": lambda: ChatReader(Profile(), SSE),
    "messages": lambda: MessagesReader(MessagesProfile(), SSE),
    "gemini": lambda: GeminiReader(10_000, SSE),
    "bedrock": lambda: BedrockReader(10_000, bedrock_wire.CONTENT_TYPE),
}


def chunks_of(wire: str, *pieces: bytes) -> list[Chunk]:
    """All that a body says."""
    reader, found = MAKE[wire](), list[Chunk]()
    for piece in pieces:
        if not reader.over:
            found += reader.feed(piece)
    if not reader.over:
        found += reader.finish()
    return found


def report(wire: str, *pieces: bytes) -> UsageReport | None:
    """The last report of a body."""
    reports = [chunk for chunk in chunks_of(wire, *pieces) if isinstance(chunk, UsageReport)]
    return reports[-1] if reports else None


def ended(chunks: Sequence[Chunk]) -> AttemptEnded:
    """How an attempt ends that says this."""
    machine = StreamMachine(QUICK, models=1, draw=lambda: 0.5)
    for item in (Begin(), Opened("x"), *chunks, Closed()):
        for effect in machine.feed(item, 0):
            if isinstance(effect, AttemptEnded):
                return effect
    raise AssertionError("the attempt has no end")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}, UsageReport(9, 4)),
        (
            {
                "prompt_tokens": 1486,
                "completion_tokens": 651,
                "total_tokens": 2137,
                "prompt_tokens_details": {"cached_tokens": 1408, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 512},
            },
            UsageReport(1486, 651, 1408, None, 512),
        ),
        (
            {
                "prompt_tokens": 40,
                "completion_tokens": 2,
                "total_tokens": 42,
                "prompt_tokens_details": None,
                "completion_tokens_details": None,
            },
            UsageReport(40, 2),
        ),
        (
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            UsageReport(32, 103, None, None, 94),
        ),
        (
            {"prompt_tokens": 20, "completion_tokens": 5, "prompt_cache_hit_tokens": 16},
            UsageReport(20, 5, 16),
        ),
        (
            {
                "input_tokens": 20,
                "output_tokens": 5,
                "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 4},
                "output_tokens_details": {"reasoning_tokens": 3},
            },
            UsageReport(20, 5, 16, 4, 3),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": "9"}},
            UsageReport(9, 4),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 4, "completion_tokens_details": [1]},
            UsageReport(9, 4),
        ),
    ],
    ids=[
        "no parts",
        "cached and reasoning",
        "parts that are null",
        "reasoning beside the answer, by the total",
        "a cache hit under another name",
        "the newer names",
        "a part that is no number",
        "parts that are a list",
    ],
)
def test_chat_completions(usage: dict[str, Any], expected: UsageReport) -> None:
    assert report("chat", event({"choices": [], "usage": usage}), DONE) == expected


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({"input_tokens": 10, "output_tokens": 1}, {"output_tokens": 7}, UsageReport(10, 7)),
        (
            {
                "input_tokens": 3,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 20,
                "output_tokens": 1,
            },
            {"output_tokens": 7},
            UsageReport(123, 7, 100, 20),
        ),
        (
            {"input_tokens": 598, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
            {"input_tokens": 598, "output_tokens": 92, "output_tokens_details": {"thinking_tokens": 53}},
            UsageReport(598, 92, 0, 0, 53),
        ),
    ],
    ids=["no parts", "the cache's parts are added", "thinking is a part of the output"],
)
def test_messages(first: dict[str, Any], last: dict[str, Any], expected: UsageReport) -> None:
    assert report("messages", messages_wire.start(**first), messages_wire.end("end_turn", last)) == expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"promptTokenCount": 9, "candidatesTokenCount": 4}, UsageReport(9, 4)),
        (
            {
                "promptTokenCount": 120,
                "cachedContentTokenCount": 100,
                "candidatesTokenCount": 4,
                "thoughtsTokenCount": 6,
                "totalTokenCount": 130,
            },
            UsageReport(120, 10, 100, None, 6),
        ),
    ],
    ids=["no parts", "what is cached is within the prompt, and thoughts are beside the candidates"],
)
def test_gemini(usage: dict[str, Any], expected: UsageReport) -> None:
    said = {"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}
    assert report("gemini", event({"candidates": [said], "usageMetadata": usage})) == expected


def test_gemini_s_counts_survive_an_answer_that_cannot_be_read() -> None:
    said = {"finishReason": "MALFORMED_FUNCTION_CALL"}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 4}
    assert report("gemini", event({"candidates": [said], "usageMetadata": usage})) == UsageReport(9, 4)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"inputTokens": 9, "outputTokens": 4, "totalTokens": 13}, UsageReport(9, 4)),
        (
            {"inputTokens": 3, "outputTokens": 7, "cacheReadInputTokens": 100, "cacheWriteInputTokens": 20},
            UsageReport(123, 7, 100, 20),
        ),
    ],
    ids=["no parts", "what has to do with the cache is beside the input"],
)
def test_bedrock(usage: dict[str, int], expected: UsageReport) -> None:
    assert report("bedrock", bedrock_wire.end("end_turn", **usage)) == expected


TEXT = {"content": {"parts": [{"text": "x"}]}}
WHOLE: dict[str, tuple[str, list[bytes]]] = {
    "chat": (
        "chat",
        [
            delta({"content": "x"}),
            delta({}, "stop"),
            event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}),
            DONE,
        ],
    ),
    "chat, counted with every piece": (
        "chat",
        [
            chat_wire.event(
                {
                    "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": reason}],
                    "usage": {"prompt_tokens": 9, "completion_tokens": made},
                }
            )
            for made, reason in ((1, None), (2, None), (4, "stop"))
        ],
    ),
    "messages": (
        "messages",
        [
            messages_wire.start(input_tokens=9, output_tokens=1),
            messages_wire.block(0, {"type": "text", "text": ""}),
            messages_wire.delta(0, "text_delta", text="x"),
            messages_wire.stop(0),
            messages_wire.end("end_turn", {"output_tokens": 4}),
        ],
    ),
    "gemini": (
        "gemini",
        [
            event(
                {
                    "candidates": [TEXT | ({"finishReason": "STOP"} if made == 4 else {})],
                    "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": made},
                }
            )
            for made in (1, 2, 4)
        ],
    ),
    "messages, with what the server wants back": (
        "messages",
        [
            messages_wire.start(input_tokens=9, output_tokens=1),
            messages_wire.block(0, {"type": "thinking", "thinking": "", "signature": ""}),
            messages_wire.delta(0, "signature_delta", signature="c2ln"),
            messages_wire.stop(0),
            messages_wire.block(1, {"type": "text", "text": "x"}),
            messages_wire.stop(1),
            messages_wire.end("end_turn", {"output_tokens": 4}),
        ],
    ),
    "bedrock": (
        "bedrock",
        [
            bedrock_wire.delta(0, reasoningContent={"signature": "c2ln"}),
            bedrock_wire.delta(1, text="x"),
            bedrock_wire.end("end_turn"),
            bedrock_wire.event("metadata", usage={"inputTokens": 9, "outputTokens": 4}),
        ],
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_answer_is_counted_as_a_whole(name: str) -> None:
    wire, pieces = WHOLE[name]
    end = ended(chunks_of(wire, *pieces))
    assert (end.outcome, end.report, end.whole) == ("completed", UsageReport(9, 4), True)


@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_that_is_cut_before_its_last_count_is_not(name: str) -> None:
    wire, pieces = WHOLE[name]
    assert not ended(chunks_of(wire, *pieces[:-2])).whole


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.file.stem)
def test_what_servers_really_send_is_counted_where_they_report_it(stream: Stream) -> None:
    end = ended(chunks_of("chat", stream.body))
    assert end.whole == (end.report is not None)


@pytest.mark.parametrize("stream", list(on_messages()), ids=lambda stream: stream.file.stem)
def test_what_servers_of_messages_send_is_counted_where_they_report_it(stream: Stream) -> None:
    end = ended(chunks_of("messages", stream.body))
    assert (end.whole, end.heard) == (end.report is not None, 0)
