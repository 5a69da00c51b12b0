"""The states of a stream and the only ways between them, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a stream stands."""

    INIT = "INIT"
    """Nothing has happened yet."""
    WAITING_FOR_TOKEN = "WAITING_FOR_TOKEN"
    """A model server is asked and has said nothing yet."""
    STREAMING = "STREAMING"
    """The answer arrives."""
    TOOL_CALL_DETECTED = "TOOL_CALL_DETECTED"
    """The model is writing a tool call."""
    CONTINUATION_MATCHING = "CONTINUATION_MATCHING"
    """A resumed answer is compared with the checkpoint."""
    CHECKPOINT_VERIFYING = "CHECKPOINT_VERIFYING"
    """What the comparison found is applied."""
    RETRYING = "RETRYING"
    """The same model will be asked again, after a pause."""
    FALLBACK = "FALLBACK"
    """The next model takes over."""
    FINALIZING = "FINALIZING"
    """The answer has ended and is checked."""
    COMPLETE = "COMPLETE"
    """The stream has its answer."""
    ERROR = "ERROR"
    """The stream ended without an answer."""


TERMINAL: Final = frozenset({State.COMPLETE, State.ERROR})


@dataclass(frozen=True, slots=True)
class Edge:
    """One permitted transition."""

    source: State
    target: State
    when: str
    """What makes it happen, for readers."""


_OPEN = (
    State.WAITING_FOR_TOKEN,
    State.STREAMING,
    State.TOOL_CALL_DETECTED,
    State.CONTINUATION_MATCHING,
    State.CHECKPOINT_VERIFYING,
)

EDGES: Final[tuple[Edge, ...]] = (
    Edge(State.INIT, State.WAITING_FOR_TOKEN, "STREAM_INIT"),
    Edge(State.INIT, State.FALLBACK, "the primary has no adapter"),
    Edge(State.INIT, State.ERROR, "nothing may be opened"),
    Edge(State.WAITING_FOR_TOKEN, State.STREAMING, "the first text, reasoning or refusal"),
    Edge(State.WAITING_FOR_TOKEN, State.TOOL_CALL_DETECTED, "a tool call comes first"),
    Edge(State.STREAMING, State.TOOL_CALL_DETECTED, "a fragment of a tool call"),
    Edge(State.TOOL_CALL_DETECTED, State.STREAMING, "text after a tool call"),
    Edge(State.STREAMING, State.WAITING_FOR_TOKEN, "the provider interrupted its answer, and gets it back"),
    Edge(State.STREAMING, State.CONTINUATION_MATCHING, "the first text of a resumed attempt"),
    Edge(State.CONTINUATION_MATCHING, State.CHECKPOINT_VERIFYING, "the overlap is settled"),
    Edge(State.CHECKPOINT_VERIFYING, State.STREAMING, "the text goes on from the checkpoint"),
    *(Edge(state, State.FINALIZING, "the answer ended and is complete") for state in _OPEN),
    *(Edge(state, State.RETRYING, "a fault, and a retry is left") for state in _OPEN),
    *(Edge(state, State.FALLBACK, "a fault, no retry, and a model is left") for state in _OPEN),
    *(Edge(state, State.ERROR, "a fault and nothing is left; abort; deadline") for state in _OPEN),
    Edge(State.RETRYING, State.WAITING_FOR_TOKEN, "the pause is over and the model is asked again"),
    Edge(State.RETRYING, State.STREAMING, "in the contract only"),
    Edge(State.RETRYING, State.ERROR, "abort or deadline in the pause"),
    Edge(State.FALLBACK, State.WAITING_FOR_TOKEN, "the next model is asked"),
    Edge(State.FALLBACK, State.STREAMING, "in the contract only"),
    Edge(State.FALLBACK, State.ERROR, "abort or deadline"),
    Edge(State.FINALIZING, State.COMPLETE, "every final check passed"),
    Edge(State.FINALIZING, State.RETRYING, "a final check failed, and a retry is left"),
    Edge(State.FINALIZING, State.FALLBACK, "a final check failed, no retry, and a model is left"),
    Edge(State.FINALIZING, State.ERROR, "a final check failed and nothing is left; abort; deadline"),
)

_NEXT: Final[Mapping[State, frozenset[State]]] = {
    state: frozenset(edge.target for edge in EDGES if edge.source is state) for state in State
}


class IllegalTransition(Exception):
    """A bug in the machine: it wanted to go where the table does not lead."""

    def __init__(self, source: State, target: State) -> None:
        super().__init__(f"no transition from {source} to {target}")
        self.source, self.target = source, target


def step(source: State, target: State) -> State:
    """`target`, if the table leads there from `source`. Raises `IllegalTransition` otherwise."""
    if target not in _NEXT[source]:
        raise IllegalTransition(source, target)
    return target


def as_mermaid() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> INIT"]
    lines += [f"    {edge.source} --> {edge.target}" for edge in EDGES]
    lines += [f"    {state} --> [*]" for state in State if state in TERMINAL]
    return "\n".join(lines)
