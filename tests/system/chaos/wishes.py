"""What clients want, drawn from a seed, and what they were told about it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.system.chaos.flaky import CHARGE, ECHO, ERRAND, LATER, LOOK


@dataclass(slots=True)
class Wish:
    """A run that a client wants once, and all it came to know of it."""

    task: str
    branch: str
    kind: str
    body: dict[str, Any]
    form: str
    """In which form the first answer is wanted: `async`, `wait` or `stream`."""
    cancel_after_s: float | None
    """When the client changes its mind."""
    repeat_after_s: float | None
    """When it sends the request once more, to see whether that is noticed."""
    cut_after_s: list[float]
    """When it leaves its event streams, one after the other; the one after these is followed to the end."""

    sent_at: float | None = None
    """When it was first sent; these times are of `time.monotonic()`, in seconds."""
    accepted_at: float | None = None
    """When an answer first told its run."""
    refused: bool = False
    """Whether an answer said that the branch was busy."""
    run_ids: set[str] = field(default_factory=set)
    """Every run that an answer has told; there should be one."""
    cancel_sent: bool = False
    ends_told: list[str] = field(default_factory=list)
    """Every terminal status that an answer has told."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """What its event streams said, joined."""
    streams: int = 0
    """How many of them there were."""
    heard_the_end: bool = False
    seen_to: bool = False
    """Whether its client has nothing more to do for it."""
    replays: int = 0
    """How often an answer said that the request had been made before."""

    @property
    def path(self) -> str:
        """Where it is posted."""
        return f"/v1/branches/{self.branch}/{self.kind}"


def wish(draw: random.Random, branches: list[str]) -> Wish:
    """The next thing that some client wants."""
    task = f"task-{draw.randrange(16**12):012x}"
    kind = "operate" if draw.random() < 0.6 else "act"
    body = _operate(draw, task) if kind == "operate" else _act(draw, task)
    if draw.random() < 0.08:
        body["if_busy"] = "reject"
    return Wish(
        task,
        draw.choice(branches),
        kind,
        body,
        draw.choice(("async", "async", "wait", "stream")),
        draw.uniform(0, 3) if draw.random() < 0.12 else None,
        draw.uniform(0, 2) if draw.random() < 0.25 else None,
        [draw.uniform(0, 1) for _ in range(draw.choice((0, 0, 1, 2, 4)))],
    )


def _operate(draw: random.Random, task: str) -> dict[str, Any]:
    body: dict[str, Any] = {"instruction": f"Carry out {task}."}
    if draw.random() < 0.5:
        body["lifecycle"] = {"continue_from_last_good_token": {"checkpoint_interval": 1}}
    if draw.random() < 0.4:
        wanted = draw.choices((CHARGE, LOOK, ERRAND), (3, 3, 1), k=draw.randint(1, 3))
        body["instruction"] += f" calls: {','.join(wanted)}"
        body |= {"actions": True, "tools": [CHARGE, LOOK, ERRAND], "action_strategy": _strategy(draw)}
    return body


def _act(draw: random.Random, task: str) -> dict[str, Any]:
    names = draw.choices((CHARGE, LOOK, LATER, ERRAND, ECHO), (4, 4, 2, 1, 1), k=draw.randint(1, 4))
    return {
        "requests": [
            {"function": name, "arguments": _arguments(draw, name, task, n)} for n, name in enumerate(names)
        ],
        "strategy": _strategy(draw),
        "call_params": {"retry_attempts": draw.choice((0, 0, 2)), "retry_initial_delay": 0.1},
    }


def _arguments(draw: random.Random, name: str, task: str, n: int) -> dict[str, Any]:
    if name == LATER:
        return {"seconds": round(draw.uniform(0, 0.5), 2), "value": task}
    return {"value": task} if name == ECHO else {"task": task, "n": n}


def _strategy(draw: random.Random) -> str:
    return draw.choice(("concurrent", "sequential"))
