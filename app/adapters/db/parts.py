"""The kinds of rows that runs write, and the one statement that writes those of a group.

A statement has a part for each kind that there are rows of, and no others: the server sets up every part of a
statement, also where it has nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from app.adapters.db.columns import RUN_COLUMNS, block_row, event_row
from app.adapters.db.sources import Source
from app.core.record import TokenBlock
from app.ports.attempts import NewAttempt
from app.ports.storage import CallEnd, Flush, NewCall, NewMessage


class Part(NamedTuple):
    """What is done with rows of one kind."""

    rows: Source
    sql: str
    """Common table expressions; {rows} stands for the rows, as a table `w`, and `fence` has the runs that may
    be written for.
    """


Kinds = tuple[Part, ...]

FENCED: Final = "(w.run_id IN (SELECT id FROM fence)) IS TRUE"
"""Whether a row is of a run that may be written for. Without IS TRUE it would be a join, which compares each
row with each run; as it stands the server looks rows up in what the fence has.
"""


def _insert(name: str, table: str, rows: Source, then: str = "") -> Part:
    into = f"INSERT INTO {table} ({', '.join(rows.names)}) SELECT w.* FROM {{rows}} WHERE {FENCED}"
    return Part(rows, f"{name} AS ({into}{then})")


_END = "status text, duration float8, response json, error json, retryable bool, ended_at timestamptz"

_EVENTS = _insert(
    "logged",
    "events",
    Source(
        "new_event",
        "run_id uuid, ts bigint, seq int, type smallint, stream smallint, attempt smallint, "
        "fallback smallint, meta json, callbacks json",
    ),
)
_BLOCKS = _insert(
    "tokens",
    "token_blocks",
    Source(
        "new_block",
        "run_id uuid, ts bigint, seq int, count int, stream smallint, attempt smallint, fallback smallint, "
        "text text, lengths bytea, delays bytea",
    ),
)
_MESSAGES = Part(
    Source(
        "new_message",
        "id uuid, project_id uuid, branch_id uuid, run_id uuid, kind text, sender text, recipient text, "
        "content json, action_request_id uuid, created_at timestamptz, nr int",
    ),
    f"""said AS MATERIALIZED (
    SELECT w.*, row_number() OVER (PARTITION BY w.branch_id ORDER BY w.nr) AS nth
    FROM {{rows}} WHERE {FENCED}
),
appended AS (
    INSERT INTO messages (id, project_id, branch_id, position, kind, sender, recipient, content, run_id,
                          action_request_id, created_at)
    SELECT s.id, s.project_id, s.branch_id, g.first + s.nth - 1, s.kind, s.sender, s.recipient,
           s.content, s.run_id, s.action_request_id, s.created_at
    FROM said s JOIN grown g ON g.id = s.branch_id
)""",
)
_CALLS = _insert(
    "called",
    "function_calls",
    Source(
        "new_call",
        "id uuid, project_id uuid, run_id uuid, branch_id uuid, call_id uuid, attempt smallint, batch int, "
        "index int, function text, action_request_id uuid, arguments json, raw_arguments json, "
        "arguments_digest text, provider_call_id text, created_at timestamptz, started_at timestamptz, "
        f"gate json, {_END}",
    ),
)
# The id goes through a look-up: told plainly, a table of calls that is taken for a small one would be read
# whole, and each of its rows compared with each of these.
_CALL_ENDS = Part(
    Source(
        "ended_call",
        f"id uuid, run_id uuid, {_END}",
    ),
    f"""answered AS (
    UPDATE function_calls c SET status = w.status, duration = w.duration, response = w.response,
           error = w.error, retryable = w.retryable, ended_at = w.ended_at
    FROM {{rows}}
    WHERE {FENCED} AND c.id = (SELECT id FROM function_calls WHERE id = w.id)
      AND c.status IN ('pending', 'processing')
)""",
)
# An attempt whose row is there was written by a try that broke off after its commit.
_ATTEMPTS = _insert(
    "attempted",
    "attempts",
    Source(
        "new_attempt",
        "run_id uuid, project_id uuid, branch_id uuid, stream smallint, fallback_index smallint, "
        "attempt smallint, purpose text, model text, provider text, wire_model text, outcome text, "
        "code text, input_tokens int, output_tokens int, cached_input_tokens int, cache_write_tokens int, "
        "reasoning_tokens int, reported bool, estimated bool, cost numeric, started_at timestamptz, "
        "ended_at timestamptz",
    ),
    " ON CONFLICT DO NOTHING RETURNING run_id, input_tokens, output_tokens, cost, ended_at",
)
# The branch row is locked (by its update) before a run is ended: whoever decides whether a branch is busy
# takes the same lock first, so a run can neither be queued behind one that has just ended nor overtake.
_ENDS = Part(
    Source(
        "ended_run",
        "run_id uuid, branch_id uuid, status text, result json, error json, validation json, "
        "finish_reason text, finish_reason_raw text, partial_text text, model text, usage json, "
        "attempts int, fallback_index int, last_seq int, ended_at timestamptz",
    ),
    f"""ending AS MATERIALIZED (SELECT w.* FROM {{rows}} WHERE {FENCED}),
ended AS (
    UPDATE runs r SET status = e.status, result = e.result, error = e.error, validation = e.validation,
           finish_reason = e.finish_reason, finish_reason_raw = e.finish_reason_raw,
           partial_text = e.partial_text, model = e.model, usage = e.usage, attempts = e.attempts,
           fallback_index = e.fallback_index, last_seq = e.last_seq, ended_at = e.ended_at,
           lease_until = NULL, owner = NULL
    FROM ending e LEFT JOIN grown g ON g.id = e.branch_id
    WHERE r.id = e.run_id
    RETURNING r.id, CASE WHEN r.ended_at IS NOT NULL THEN r.branch_id END AS freed
)""",
)

_HELD = Source("held_run", "id uuid, epoch int")
_PARTS: Kinds = (_EVENTS, _BLOCKS, _MESSAGES, _CALLS, _CALL_ENDS, _ATTEMPTS, _ENDS)
WRITTEN = (_HELD, *(part.rows for part in _PARTS))
"""The rows that `writing` takes."""
_COUNTED = {
    _MESSAGES: "SELECT branch_id, count(*) AS n FROM said GROUP BY branch_id",
    _ENDS: "SELECT branch_id, 0 FROM ending WHERE branch_id IS NOT NULL",
}
"""How many messages the rows of a part add to which branches."""

# A plain epoch predicate would not fence: a claim that commits while this statement waits would let the old
# writer's rows in. The share lock makes the claim wait, or makes us see its epoch.
_FENCE = """WITH RECURSIVE fence AS MATERIALIZED (
    SELECT r.id FROM runs r JOIN {rows} ON r.id = w.id AND r.epoch = w.epoch AND r.ended_at IS NULL
    ORDER BY r.id FOR SHARE OF r
)"""

# The next run is started by a function, for its statements see what was committed while this one waited for
# the branch; and it is called with what `ended` gives, so that the old run has ended before.
_HAND_OVER = f"""
SELECT f.id AS fenced, {", ".join(f"n.{name}" for name in RUN_COLUMNS.split(", "))}
FROM fence f LEFT JOIN ended e ON e.id = f.id
LEFT JOIN LATERAL hand_over(e.freed, {{owner}}, {{lease}}, {{now}}) n ON true"""

Rows = Mapping[Part, Sequence[Sequence[Any]]]
"""Rows of those parts that have any, in the order of the parts."""


# What attempts use counts where the key or the project has a limit on it, on the day of their ends, in a row
# of the process that writes: two processes would wait for each other's commits at one.
_SPENT = """spent AS (
    INSERT INTO quota_days AS d (quota_id, day, writer, tokens, cost)
    SELECT q.id, (a.ended_at AT TIME ZONE 'UTC')::date, coalesce(r.owner, q.id),
           sum(a.input_tokens::bigint + a.output_tokens), coalesce(sum(a.cost), 0)
    FROM attempted a JOIN runs r ON r.id = a.run_id JOIN quotas q ON q.id IN (r.project_id, r.key_id)
    WHERE q.tokens_per_day IS NOT NULL OR q.cost_per_day IS NOT NULL
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (quota_id, day, writer) DO UPDATE
    SET tokens = d.tokens + excluded.tokens, cost = d.cost + excluded.cost
)"""


@cache
def writing(parts: Kinds, *, alone: bool, counting: bool = False) -> str:
    """The statement for rows of these parts; `alone` where they are one run's.

    `counting` says that what attempts use is counted for those who have a limit on it.

    Its parameters: runs with their epochs, the rows of each part, and then, where runs end, the owner of
    those that follow, the length of its lease and the time. It gives `fenced`, the runs that were written
    for, with the runs that follow them on their branches.
    """
    fence = _FENCE.format(rows=_HELD.table(1))
    ctes, after = common(parts, 2, in_order=alone)
    if counting and _ATTEMPTS in parts:
        ctes += f",\n{_SPENT}"
    if _ENDS not in parts:
        return f"{fence}{ctes} SELECT id AS fenced FROM fence"
    owner, lease, now = (f"${after + n}" for n in range(3))
    return f"{fence}{ctes} {_HAND_OVER.format(owner=owner, lease=f'{lease}::interval', now=now)}"


def common(parts: Kinds, first: int, *, in_order: bool) -> tuple[str, int]:
    """The common table expressions of these parts, each after a comma, with parameters from `first` on; and
    what number the next parameter has. `in_order` says that the branches are one only, or locked.
    """
    out = [part.sql.format(rows=part.rows.table(number)) for number, part in enumerate(parts, first)]
    counts = [_COUNTED[part] for part in parts if part in _COUNTED]
    if counts:
        out.append(_COUNTS.format(" UNION ALL ".join(counts)))
        out += [_GROWN.format("counts")] if in_order else [_IN_ORDER, _GROWN.format("in_order")]
    return "".join(f",\n{cte}" for cte in out), first + len(parts)


_COUNTS = """counts AS (
    SELECT branch_id, sum(n)::int AS n FROM ({}) AS each (branch_id, n) GROUP BY branch_id
)"""
# An update takes its rows as they come; several branches are locked in the order in which runs are accepted,
# or two groups could wait for each other.
_IN_ORDER = """in_order AS MATERIALIZED (
    SELECT c.* FROM counts c JOIN branches b ON b.id = c.branch_id ORDER BY b.id FOR NO KEY UPDATE OF b
)"""
_GROWN = """grown AS (
    UPDATE branches b SET next_position = b.next_position + g.n FROM {} g
    WHERE b.id = g.branch_id
    RETURNING b.id, b.next_position - g.n AS first
)"""

_MESSAGE = attrgetter("kind", "sender", "recipient", "content", "action_request_id")
_CALL = attrgetter(
    *("call_id", "attempt", "batch", "index", "function", "action_request_id", "arguments"),
    *("raw_arguments", "arguments_digest", "provider_call_id"),
)
_CALL_END = attrgetter("status", "duration", "response", "error", "retryable", "ended_at")
_ATTEMPT = attrgetter(
    *("stream", "fallback_index", "attempt", "purpose", "model", "provider", "wire_model", "outcome", "code"),
    *("usage.input_tokens", "usage.output_tokens", "usage.cached_input_tokens", "usage.cache_write_tokens"),
    *("usage.reasoning_tokens", "usage.reported", "usage.estimated", "cost", "started_at", "ended_at"),
)
_RUN_END = attrgetter("id", *_ENDS.rows.names[1:])


def rows_of(flushes: Iterable[Flush], now: datetime) -> Rows:
    """What the flushes have to write."""
    events: list[tuple[Any, ...]] = []
    blocks: list[tuple[Any, ...]] = []
    messages: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    call_ends: list[tuple[Any, ...]] = []
    attempts: list[tuple[Any, ...]] = []
    ends: list[tuple[Any, ...]] = []
    for f in flushes:
        for entry in f.entries:
            if isinstance(entry, TokenBlock):
                blocks.append(block_row(f.run_id, entry))
            else:
                events.append(event_row(f.run_id, entry))
        # A call that begins and ends in one flush is inserted as it ended: one statement does not see its
        # own inserts.
        ended = {row.id: row for row in f.rows if isinstance(row, CallEnd)}
        for row in f.rows:
            if isinstance(row, NewMessage):
                of = (row.id, f.project_id, f.branch_id, f.run_id)
                messages.append((*of, *_MESSAGE(row), now, len(messages)))
            elif isinstance(row, NewCall):
                end = ended.pop(row.id, None)
                state = _CALL_END(end) if end is not None else (row.status, *(None,) * 5)
                place = (row.id, f.project_id, f.run_id, f.branch_id)
                calls.append((*place, *_CALL(row), now, row.started_at, row.gate, *state))
            elif isinstance(row, NewAttempt):
                attempts.append((f.run_id, f.project_id, f.branch_id, *_ATTEMPT(row)))
        call_ends += [(id, f.run_id, *_CALL_END(end)) for id, end in ended.items()]
        if f.end is not None:
            ends.append(_RUN_END(f.end))
    lists = (events, blocks, messages, calls, call_ends, attempts, ends)
    return {part: rows for part, rows in zip(_PARTS, lists, strict=True) if rows}
