"""What is posted of a log, however it is cut: everything once, in order, and after a loss the same again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events.base import Callback
from app.core.events.retry import RetryAttempt
from app.core.events.run import RunCompleted
from app.core.record import Entry, TokenBlock
from app.ports.storage import RunRecord, RunStore
from app.ports.webhooks import Due
from app.services.entries import entry_of
from app.services.posts import next_stretch

pytestmark = pytest.mark.anyio

RUN = UUID(int=5)


class Log:
    """The store of one run, of whose log the first `seq` events are committed."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self.seq = 0
        now = datetime.now(UTC)
        self.run_record = RunRecord(RUN, UUID(int=1), UUID(int=2), "operate", "running", "{}", now)

    async def page(self, run_id: UUID, *, after: int, limit: int) -> Sequence[Entry]:
        """See the port; here no block goes over the limit."""
        committed = cut(list(self._entries), self.seq)
        later = [
            entry.after(after) if isinstance(entry, TokenBlock) else entry
            for entry in committed
            if entry.last_seq > after
        ]
        return cut(later, limit)

    async def run(self, project_id: UUID, run_id: UUID) -> RunRecord:
        """See the port."""
        return self.run_record


def cut(entries: list[Entry], limit: int) -> list[Entry]:
    """The entries of the first `limit` events."""
    out: list[Entry] = []
    left = limit
    for entry in entries:
        size = len(entry.texts) if isinstance(entry, TokenBlock) else 1
        if left <= 0:
            break
        out.append(entry.before(entry.seq + left) if isinstance(entry, TokenBlock) and size > left else entry)
        left -= size
    return out


def log_of(kinds: Sequence[str]) -> list[Entry]:
    """A log: callbacks, plain events and blocks of tokens, and its end."""
    entries: list[Entry] = []
    seq = 1
    for kind in kinds:
        if kind == "tokens":
            entries.append(TokenBlock(seq, seq, 0, 1, 0, ["x"] * 3, [0] * 3))
            seq += 3
            continue
        event = RetryAttempt(seq, "network", 0, 3)
        if kind == "callback":
            event.then(Callback("on_retry", (seq, "network")))
        entries.append(entry_of(event, seq, seq, 0, 1, 0))
        seq += 1
    return [*entries, entry_of(RunCompleted("completed", usage=None, error=None), seq, seq)]


def due(seq: int, posted: int, post_seq: int | None, **more: Any) -> Due:
    return Due(
        **{
            "endpoint_id": UUID(int=9),
            "run_id": RUN,
            "project_id": UUID(int=1),
            "epoch": 1,
            "delivered_seq": seq,
            "post_seq": post_seq,
            "posts": posted,
            "failures": 0,
            "url": "http://hooks.example",
            "secrets": (),
            "callbacks": None,
            "event_types": (),
            "age_s": 0.0,
            **more,
        }
    )


@given(
    kinds=st.lists(st.sampled_from(["callback", "event", "tokens"]), max_size=12),
    commits=st.lists(st.integers(0, 30), max_size=12),
    losses=st.sets(st.integers(0, 11)),
    page=st.integers(1, 8),
)
async def test_everything_comes_once_in_order_and_what_was_lost_as_it_was(
    kinds: list[str], commits: list[int], losses: set[int], page: int
) -> None:
    entries = log_of(kinds)
    last_seq = entries[-1].last_seq
    log = Log(entries)
    store = cast(RunStore, log)
    told: dict[str, dict[str, Any]] = {}
    seq = posted = 0
    post_seq: int | None = None
    steps = [*sorted(min(commit, last_seq) for commit in commits), *[last_seq] * (2 * last_seq + 16)]
    for step, committed in enumerate(steps):
        log.seq = committed
        stretch = await next_stretch(store, log.run_record, due(seq, posted, post_seq), limit=page)
        if stretch.post is not None:
            body = json.loads(stretch.post.body)["data"]
            # The same id never means something else.
            assert told.setdefault(stretch.post.id, body) == body
            if step in losses:
                # Where a post ends is noted, unless it reaches the end of the log.
                post_seq = None if stretch.ended else stretch.last_seq
                continue
            posted += 1
        seq, post_seq = stretch.last_seq, None
        if stretch.ended:
            break
    assert seq == last_seq
    fired = [callback["seq"] for body in told.values() for callback in body["callbacks"]]
    assert fired == [e.seq for e in entries if getattr(e, "callbacks", None)]
    ends = [body["ended"] for body in told.values()]
    assert ends == ([*[False] * (len(ends) - 1), True] if fired else [])


async def test_who_has_heard_nothing_hears_nothing_of_the_end() -> None:
    log = Log(log_of(["event", "tokens"]))
    log.seq = 5
    store = cast(RunStore, log)
    stretch = await next_stretch(store, log.run_record, due(0, 0, None))
    assert (stretch.post, stretch.ended, stretch.last_seq) == (None, True, 5)
    stretch = await next_stretch(store, log.run_record, due(3, 1, None))
    assert stretch.post is not None
    assert json.loads(stretch.post.body)["data"]["callbacks"] == []


async def test_events_that_were_asked_for_come_beside_callbacks() -> None:
    log = Log(log_of(["callback", "tokens"]))
    log.seq = 5
    asked = due(0, 0, None, callbacks=[], event_types=["TOKEN", "RUN_COMPLETED"])
    stretch = await next_stretch(cast(RunStore, log), log.run_record, asked)
    assert stretch.post is not None
    data = json.loads(stretch.post.body)["data"]
    assert [event["type"] for event in data["events"]] == [*["TOKEN"] * 3, "RUN_COMPLETED"]
    assert data["callbacks"] == []
