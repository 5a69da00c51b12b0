"""The loads: what is asked of a target, and the figures that come of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.client import Connection, LoadFailed, Outcome, load
from benchmarks.figures import Figures, Scale, p50, p99
from benchmarks.targets import CLIENTS, Branchline, Target

PLAIN: Final = 16
"""Tokens of the answer of a trivial run."""
LONG: Final = 200
"""Tokens of an answer at full speed."""
PACED: Final = 100
"""Tokens of an answer at 20 ms each."""
BATCH: Final = 100
"""Tool calls of a batch."""
EARLY, LATE = (15, 25), (195, 205)
"""Turns of one branch that are compared; the figures are named after their middle."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load that any target can bear."""

    name: str
    clients: int
    model: str
    tokens: int
    streamed: bool
    count: Callable[[Scale], int]
    read: Callable[[Outcome], Figures]

    async def prepare(self, target: Target, scale: Scale) -> None:
        """Make ready, so that the load is all that happens while it is watched."""
        await target.prepare(self.count(scale), self.model)

    async def run(self, target: Target, scale: Scale) -> Figures:
        """Bear it. Raises LoadFailed when an answer is not what it should be."""
        asked = [target.question(self.model, stream=self.streamed) for _ in range(self.count(scale))]
        outcome = await load(target.address, asked, clients=min(self.clients, len(asked)), mark=target.mark)
        for answer in outcome.answers:
            target.check(answer, tokens=self.tokens, stream=self.streamed)
        return self.read(outcome)


def _one(outcome: Outcome) -> Figures:
    return {"wait1_ms": p50([answer.whole_ms for answer in outcome.answers])}


def _many(outcome: Outcome) -> Figures:
    return {
        "wait32_per_s": len(outcome.answers) / outcome.elapsed_s,
        "wait32_p99_ms": p99([answer.whole_ms for answer in outcome.answers]),
    }


def _first(outcome: Outcome) -> Figures:
    return {"first_token_ms": p50([answer.first_ms for answer in outcome.answers])}


def _streams(outcome: Outcome) -> Figures:
    return {"streams_per_s": len(outcome.answers) * LONG / outcome.elapsed_s}


def _paced(outcome: Outcome) -> Figures:
    return {"paced_s": p50([answer.whole_ms for answer in outcome.answers]) / 1000}


LOADS: Final = (
    Load("wait1", 1, f"fake-t{PLAIN}", PLAIN, False, lambda scale: scale.one_client, _one),
    Load("wait32", CLIENTS, f"fake-t{PLAIN}", PLAIN, False, lambda scale: scale.many_clients, _many),
    Load("first_token", 1, "fake-t1", 1, True, lambda scale: scale.first_tokens, _first),
    Load("streams", CLIENTS, f"fake-t{LONG}", LONG, True, lambda scale: scale.streams, _streams),
    Load("paced", CLIENTS, f"fake-t{PACED}-d20", PACED, True, lambda scale: scale.paced, _paced),
)


async def act(service: Branchline, scale: Scale) -> Figures:
    """Tool calls without a model: single ones, and batches in one request."""
    figures: Figures = {}
    for name, calls, count in (("act1_ms", 1, scale.acts), ("act100_ms", BATCH, scale.batches)):
        asked = [service.act(calls) for _ in range(count)]
        outcome = await load(service.address, asked, clients=1)
        for answer in outcome.answers:
            service.check_run(answer)
            _all_completed(answer.json()["result"], calls)
        figures[name] = p50([answer.whole_ms for answer in outcome.answers])
    for name, keyed in (("act32_per_s", False), ("act32_keyed_per_s", True)):
        asked = [service.act(1, keyed=keyed) for _ in range(scale.many_clients)]
        outcome = await load(service.address, asked, clients=CLIENTS)
        for answer in outcome.answers:
            service.check_run(answer)
        figures[name] = len(outcome.answers) / outcome.elapsed_s
    return figures


async def turns(service: Branchline, scale: Scale) -> Figures:
    """Operate with a tool call, turn after turn on one branch."""
    branch = service.branch()
    asked = service.operate_with_action(branch, TURN_MODEL)
    times: list[float] = []
    connection = await Connection.open(service.address)
    try:
        for _ in range(scale.turns):
            answer = await connection.ask(asked)
            service.check_run(answer)
            _all_completed(answer.json()["result"]["action_responses"], 1)
            times.append(answer.whole_ms)
    finally:
        connection.close()
    return {"turn20_ms": p50(times[slice(*EARLY)]), "turn200_ms": p50(times[slice(*LATE)])}


TURN_MODEL: Final = "fake-t4-c1"


def _all_completed(responses: list[dict[str, Any]], expected: int) -> None:
    if len(responses) != expected or any(response.get("error") for response in responses):
        raise LoadFailed(f"tool calls did not succeed: {responses[:2]}")


@dataclass(frozen=True, slots=True)
class OwnLoad:
    """A load that only the service can bear."""

    name: str
    model: str
    branches: Callable[[Scale], int]
    work: Callable[[Branchline, Scale], Coroutine[Any, Any, Figures]]

    async def prepare(self, target: Branchline, scale: Scale) -> None:
        """Make ready, so that the load is all that happens while it is watched."""
        await target.prepare(self.branches(scale), self.model)

    async def run(self, target: Branchline, scale: Scale) -> Figures:
        """Bear it. Raises LoadFailed when an answer is not what it should be."""
        return await self.work(target, scale)


OWN_LOADS: Final = (
    OwnLoad("act", f"fake-t{PLAIN}", lambda scale: scale.acts + scale.batches + 2 * scale.many_clients, act),
    OwnLoad("turns", TURN_MODEL, lambda scale: 1, turns),
)
