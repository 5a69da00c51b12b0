"""Answers of model servers that are nearly right, in pieces that a fuzz target changes, on each wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from tests.support import bedrock_wire, chat_wire, gemini_wire, messages_wire
from tests.support.fuzzing import damaged, encoded, json_of, nearly
from tests.support.model_server import Attempt
from tests.support.streams import STREAMS, on_messages

MOST_BYTES: Final = 6_000
"""Of a stream that is changed."""
STEPS: Final[Sequence[Mapping[str, Any]]] = [
    {"reasoning": "so "},
    {"text": "one "},
    {"text": "two"},
    {"tool_call": {"index": 0, "id": "c1", "name": "add", "arguments": '{"a": 1,'}},
    {"tool_call": {"index": 0, "arguments": ' "b": 2}'}},
    {"tool_call": {"index": 1, "id": "c2", "name": "echo", "arguments": '{"value": {"x": [1]}}'}},
    {"usage": {"input_tokens": 3, "output_tokens": 4}},
    {"end": "tool_calls"},
]
"""An answer with everything that all wires have."""

Unit = tuple[str, Any]
"""The name of an event, empty where it has none, and its JSON; what is no JSON stands as bytes."""


@dataclass(frozen=True)
class Wire:
    """One provider's."""

    seeds: Sequence[Sequence[Unit]]
    pack: Callable[[str, bytes], bytes]
    """One event of a name and a payload."""
    good: Attempt
    """Says `fine`."""
    content_type: str = "text/event-stream"


def _units(body: bytes) -> Sequence[Unit]:
    """The events of an event stream."""
    return [_unit(event) for event in body.replace(b"\r\n", b"\n").split(b"\n\n") if event.strip()]


def _unit(event: bytes) -> Unit:
    fields = [line.partition(b":") for line in event.split(b"\n")]
    named = {name: value.strip() for name, _, value in fields}
    try:
        return named.get(b"event", b"").decode(), json.loads(named[b"data"])
    except (KeyError, ValueError):
        return "", event


def _event(name: str, payload: bytes) -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + payload + b"\n\n"


def _frame(name: str, payload: bytes) -> bytes:
    kind = "exception" if name.endswith("Exception") else "event"
    headers = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    return bedrock_wire.frame(headers, payload)


_BEDROCK: Final[Sequence[Unit]] = [
    ("messageStart", {"role": "assistant"}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "so "}}}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "s"}}}),
    ("contentBlockStop", {"contentBlockIndex": 0}),
    ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "one"}}),
    ("contentBlockStart", {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "c", "name": "add"}}}),
    ("contentBlockDelta", {"contentBlockIndex": 2, "delta": {"toolUse": {"input": '{"a": 1, "b": 2}'}}}),
    ("contentBlockStop", {"contentBlockIndex": 2}),
    ("messageStop", {"stopReason": "tool_use"}),
    ("metadata", {"usage": {"inputTokens": 3, "outputTokens": 4}, "metrics": {"latencyMs": 9}}),
]
_FAILING: Final[Sequence[Unit]] = [*_BEDROCK[:5], ("throttlingException", {"message": "slow down"})]
_SIGNED: Final[Sequence[Unit]] = [
    ("", {"candidates": [{"content": {"parts": [{"text": "so ", "thought": True}]}, "index": 0}]}),
    ("", {"candidates": [{"content": {"parts": [{"text": "one", "thoughtSignature": "c2ln"}]}}]}),
    ("", {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 1}}),
]


def _joined(attempt: Attempt) -> bytes:
    return b"".join(piece for piece in attempt.chunks if isinstance(piece, bytes))


WIRES: Final[Mapping[str, Wire]] = {
    "openai": Wire(
        [
            _units(_joined(chat_wire.attempt(STEPS))),
            *(_units(stream.body) for stream in STREAMS if len(stream.body) < MOST_BYTES),
        ],
        _event,
        Attempt(chat_wire.text("fine"), framing="chunked", then="keep"),
    ),
    "anthropic": Wire(
        [
            _units(_joined(messages_wire.attempt(STEPS))),
            *(_units(stream.body) for stream in on_messages() if len(stream.body) < MOST_BYTES),
        ],
        _event,
        Attempt(messages_wire.text("fine"), framing="chunked", then="keep"),
    ),
    "gemini": Wire(
        [_units(_joined(gemini_wire.attempt(STEPS))), _SIGNED],
        _event,
        Attempt(gemini_wire.text("fine"), framing="chunked", then="keep"),
    ),
    "bedrock": Wire(
        [_BEDROCK, _FAILING],
        _frame,
        bedrock_wire.attempt([{"text": "fine"}, {"end": "stop"}]),
        bedrock_wire.CONTENT_TYPE,
    ),
}


def words_in(values: Sequence[Any]) -> st.SearchStrategy[str]:
    """The names and short texts in some JSON: what is likely to mean something."""
    found: set[str] = set()
    rest = list(values)
    while rest:
        match rest.pop():
            case dict() as members:
                found |= set(members)
                rest += members.values()
            case list() as items:
                rest += items
            case str() as text if len(text) < 30:
                found.add(text)
    return st.sampled_from(sorted(found))


@st.composite
def changed(draw: st.DrawFn, units: Sequence[Unit], anything: st.SearchStrategy[Any]) -> list[Unit]:
    """The events with some of them changed, left out, doubled or moved."""
    out = list(units)
    for _ in range(draw(st.integers(0, 4))):
        if not out:
            break
        at = draw(st.integers(0, len(out) - 1))
        name, payload = out[at]
        match draw(st.sampled_from(["change", "change", "change", "anything", "drop", "double", "move"])):
            case "change" if not isinstance(payload, bytes):
                out[at] = name, draw(nearly(payload, anything))
            case "anything":
                out[at] = name, draw(anything)
            case "drop":
                del out[at]
            case "double":
                out.insert(draw(st.integers(0, len(out))), out[at])
            case "move":
                out.insert(draw(st.integers(0, len(out) - 1)), out.pop(at))
    return out


def bodies(wire: Wire) -> st.SearchStrategy[bytes]:
    """Bodies of all kinds, from noise to answers that are as good as right."""
    anything = json_of(words_in([payload for seed in wire.seeds for _, payload in seed]))

    def packed(units: Sequence[Unit]) -> bytes:
        return b"".join(
            payload if isinstance(payload, bytes) else wire.pack(name, encoded(payload))
            for name, payload in units
        )

    near = st.sampled_from(wire.seeds).flatmap(lambda seed: changed(seed, anything)).map(packed)
    return st.one_of(
        near,
        near.flatmap(damaged),
        st.sampled_from(wire.seeds).map(packed).flatmap(damaged),
        anything.map(encoded),
        st.lists(anything, max_size=5).map(lambda said: packed([("", one) for one in said])),
        st.binary(max_size=600),
    )
