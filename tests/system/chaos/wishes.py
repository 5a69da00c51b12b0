"""What clients want, drawn from a seed, and what they were told about it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.system.chaos.flaky import CHARGE, ECHO, ERRAND, LATER, LOOK
from tests.system.chaos.servers import MODEL

T = TypeVar("T")

ENDING = ("interrupt", "rollback")
"""What `if_busy` says where the active run is to end."""
_IF_BUSY: Mapping[str | None, int] = {None: 62, "enqueue": 4, "reject": 8, "interrupt": 13, "rollback": 13}
_KINDS = {"operate": 50, "act": 36, "consensus": 14}


@dataclass(slots=True)
class Wish:
    """A run that a client wants once, and all it came to know of it."""

    task: str
    branch: str | None
    """None for a consensus that keeps no conversation."""
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
    cancel_amid: bool = False
    """Whether its client changes its mind so long after a replica is hit, and not after the acceptance."""
    twins: int = 0
    """How often it is sent once more at the same moment."""

    sent_at: float | None = None
    """When it was first sent; these times are of `time.monotonic()`, in seconds."""
    accepted_at: float | None = None
    """When an answer first told its run."""
    refused: bool = False
    """Whether an answer said that the branch was busy."""
    run_ids: set[str] = field(default_factory=set)
    """Every run that an answer has told; there should be one."""
    cancel_sent: bool = False
    to_end: dict[str, int] = field(default_factory=dict)
    """Runs that are to end as its client was told, its own or the one it replaces, with their epochs then."""
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
        return "/v1/consensus" if self.kind == "consensus" else f"/v1/branches/{self.branch}/{self.kind}"

    @property
    def if_busy(self) -> str:
        """What is to become of it on a busy branch."""
        return str(self.body.get("if_busy", "enqueue"))


def wish(draw: random.Random, branches: list[str]) -> Wish:
    """The next thing that some client wants."""
    task = f"task-{draw.randrange(16**12):012x}"
    kind, branch = _one_of(draw, _KINDS), draw.choice(branches)
    body = _BODIES[kind](draw, task)
    if kind == "consensus" and draw.random() < 0.6:
        body["branch_id"] = branch
    if (if_busy := _one_of(draw, _IF_BUSY)) is not None:
        body["if_busy"] = if_busy
    cancel = draw.random()
    return Wish(
        task,
        body.get("branch_id") if kind == "consensus" else branch,
        kind,
        body,
        draw.choice(("async", "async", "wait", "stream")),
        draw.uniform(0, 3) if cancel < 0.1 else draw.uniform(0, 0.5) if cancel < 0.3 else None,
        draw.uniform(0, 2) if draw.random() < 0.25 else None,
        [draw.uniform(0, 1) for _ in range(draw.choice((0, 0, 1, 2, 4)))],
        cancel_amid=0.1 <= cancel < 0.3,
        twins=draw.choice((0, 0, 0, 0, 1, 2)),
    )


def _one_of(draw: random.Random, odds: Mapping[T, int]) -> T:
    (found,) = draw.choices(list(odds), list(odds.values()))
    return found


def _operate(draw: random.Random, task: str) -> dict[str, Any]:
    body: dict[str, Any] = {"instruction": f"Carry out {task}."}
    if draw.random() < 0.5:
        body["lifecycle"] = _GOES_ON
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


def _consensus(draw: random.Random, task: str) -> dict[str, Any]:
    return {
        "instruction": f"Agree on {task}.",
        "voters": [MODEL] * draw.choice((2, 2, 3)),
        "strategy": draw.choice(("majority", "unanimous", "weighted", "best")),
        "conflict": draw.choice(("vote", "vote", "best", "fail")),
        **({"lifecycle": _GOES_ON} if draw.random() < 0.5 else {}),
    }


def _arguments(draw: random.Random, name: str, task: str, n: int) -> dict[str, Any]:
    if name == LATER:
        return {"seconds": round(draw.uniform(0, 0.5), 2), "value": task}
    return {"value": task} if name == ECHO else {"task": task, "n": n}


def _strategy(draw: random.Random) -> str:
    return draw.choice(("concurrent", "sequential"))


_GOES_ON = {"continue_from_last_good_token": {"checkpoint_interval": 1}}
_BODIES = {"operate": _operate, "act": _act, "consensus": _consensus}
