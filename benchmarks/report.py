"""The table: each figure beside what is to be reached and what nothing could be faster than."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks.rounds import Measured

_S = "branchline."
_D = "direct."


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    label: str
    figure: str
    unit: str
    goal: str = ""
    floor: str | None = None
    """The figure that this one is divided by, round by round."""
    minus: str | None = None
    """The figure that is taken from this one first, round by round."""


_COMMIT = "floor.commit_ms"

ROWS: Final = (
    Row("operate, wait, 1 client, p50", _S + "wait1_ms", "ms", floor=_D + "wait1_ms"),
    Row("— over the model's own", _S + "wait1_ms", "ms", "≤ 5", _COMMIT, minus=_D + "wait1_ms"),
    Row("operate, wait, 32 clients", _S + "wait32_per_s", "req/s", "≥ 600", _D + "wait32_per_s"),
    Row("— p99", _S + "wait32_p99_ms", "ms", "≤ 120", _D + "wait32_p99_ms"),
    Row("— CPU of the service", _S + "service_us_per_run", "µs/run"),
    Row("— CPU of Postgres", _S + "postgres_us_per_run", "µs/run"),
    Row("— stored, with the whole log", _S + "bytes_per_run", "B/run", "≤ 6000"),
    Row("first token, 1 client, p50", _S + "first_token_ms", "ms", floor=_D + "first_token_ms"),
    Row("— over the model's own", _S + "first_token_ms", "ms", "≤ 4", _COMMIT, minus=_D + "first_token_ms"),
    Row(
        "32 streams × 200, all stored",
        _S + "streams_per_s",
        "tokens/s",
        "≥ 35000",
        _D + "streams_per_s",
    ),
    Row("— CPU of the service", _S + "service_us_per_token", "µs/token"),
    Row("— CPU of Postgres", _S + "postgres_us_per_token", "µs/token"),
    Row("— stored in token blocks", _S + "bytes_per_token", "B/token"),
    Row("— the same without the text", _S + "bytes_beside_text", "B/token", "≤ 6"),
    Row("32 streams × 100 at 20 ms, run p50", _S + "paced_s", "s", "≤ 2.12", _D + "paced_s"),
    Row("act, one call, p50", _S + "act1_ms", "ms", "≤ 4", _COMMIT),
    Row("act, one call each, 32 clients", _S + "act32_per_s", "calls/s", "≥ 500"),
    Row("— with idempotency keys", _S + "act32_keyed_per_s", "calls/s"),
    Row("act, batch of 100, p50", _S + "act100_ms", "ms", "≤ 30", _COMMIT),
    Row("the same by the lionagi package, in memory, one call", "lionagi.act1_ms", "ms"),
    Row("— batch of 100, p50", "lionagi.act100_ms", "ms"),
    Row("operate + action at turn 20", _S + "turn20_ms", "ms"),
    Row("operate + action at turn 200", _S + "turn200_ms", "ms", "≤ 1.1 × turn 20", _S + "turn20_ms"),
    Row("next prompt of a 10,000-message branch", "prompt.warm_ms", "ms CPU", "≤ 5"),
    Row("— where nothing is kept of it", "prompt.cold_ms", "ms CPU", floor="prompt.warm_ms"),
    *(
        row
        for length in (10_000, 100_000)
        for row in (
            Row(
                f"one run of {length // 1000}k tokens, all on, stored",
                f"{_S}long_{length}_bytes_per_token",
                "B/token",
                "" if length == 10_000 else "flat",
                None if length == 10_000 else _S + "long_10000_bytes_per_token",
            ),
            Row("— memory on top, at most", f"{_S}long_{length}_mb", "MB"),
        )
    ),
    Row("cancel to closed at the model, p50", _S + "cancel_to_close_ms", "ms"),
    Row("— most", _S + "cancel_to_close_most_ms", "ms", "≤ 100"),
    Row("limit to closed at the model, p50", _S + "limit_to_close_ms", "ms"),
    Row("— most", _S + "limit_to_close_most_ms", "ms", "≤ 100"),
    *(
        row
        for count in (1, 2, 3)
        for row in (
            Row(
                f"operate, wait, 32 clients over {count} process{'es' * (count > 1)}",
                f"{_S}replicas{count}_per_s",
                "req/s",
                floor=None if count == 1 else _S + "replicas1_per_s",
            ),
            Row("— CPU of the service", f"{_S}replicas{count}_service_us", "µs/run"),
            Row("— CPU of Postgres", f"{_S}replicas{count}_postgres_us", "µs/run"),
        )
    ),
    Row("memory of the service, idle", _S + "idle_mb", "MB", "≤ 100"),
    Row("memory of the service, after", _S + "after_mb", "MB", "≤ 120", _S + "idle_mb"),
    *(
        Row(
            f"lifecycle, {what}, {length // 1000}k tokens",
            f"lifecycle.{name}_{length}_us",
            "µs/token",
            goal if length == 1_000 else goal and f"{goal}, flat",
            None if length == 1_000 else f"lifecycle.{name}_1000_us",
        )
        for name, what, goal in (
            ("bare", "bare", "≤ 1"),
            ("everything", "everything on, one line", "≤ 3"),
            ("everything_lines", "everything on, lines", "≤ 3"),
            ("everything_json", "everything on, JSON", "≤ 3"),
        )
        for length in (1_000, 10_000, 100_000)
    ),
    *(
        Row(
            f"the same by the l0 package, {what}, {length // 1000}k tokens",
            f"l0.{name}_{length}_us",
            "µs/token",
            floor=f"lifecycle.{name}_{length}_us",
        )
        for name, what in (
            ("bare", "bare"),
            ("everything", "everything on, one line"),
            ("everything_lines", "everything on, lines"),
        )
        for length in (1_000, 10_000)
    ),
    *(
        Row(f"{what}, {size} chunk{'s' * (size > 1)} a read", f"decoding.{name}_{size}_us", "µs/chunk")
        for name, what in (("sse", "events from bytes"), ("reader", "chunks from bytes"))
        for size in (1, 16)
    ),
    Row("provider over HTTP, CPU", "decoding.provider_us", "µs/chunk"),
    Row("a value of 20 fields held against its schema", "schema.20_fields_us", "µs", "≤ 5"),
    Row("— of 1,000 fields", "schema.1000_fields_us", "µs", floor="schema.20_fields_us"),
    Row("— the last of 500 alternatives", "schema.500_kinds_us", "µs"),
    Row("— 60 levels of a recursive schema", "schema.60_deep_us", "µs"),
    Row("— the last of 1,000 listed values", "schema.1000_listed_us", "µs"),
    Row("a schema of 20 fields found again", "schema.again_us", "µs"),
    Row("a schema of 1,000 fields compiled", "schema.first_ms", "ms CPU"),
    *(
        Row(
            f"partial values, {length // 1000}k tokens",
            f"partial.{length}_us",
            "µs/token",
            "" if length == 1_000 else "flat",
            None if length == 1_000 else "partial.1000_us",
        )
        for length in (1_000, 10_000, 100_000)
    ),
    Row("floor: small insert and its commit, p50", _COMMIT, "ms", floor="floor.sync_ms"),
    Row("floor: a page certainly on disk, p50", "floor.sync_ms", "ms"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A row with its figures."""

    label: str
    unit: str
    goal: str
    median: float
    least: float
    most: float
    floor: float | None
    ratio: float | None
    """Median over rounds of the figure over its floor."""


def lines(measured: Measured) -> list[Line]:
    """The rows of which there are figures."""
    return [line for row in ROWS if (line := _line(row, measured.samples)) is not None]


def _line(row: Row, samples: dict[str, list[float]]) -> Line | None:
    values = samples.get(row.figure)
    if values is None or any(map(math.isnan, values)):
        return None
    if row.minus is not None:
        values = [value - less for value, less in zip(values, samples[row.minus], strict=True)]
    floors = samples.get(row.floor) if row.floor is not None else None
    return Line(
        row.label,
        row.unit,
        row.goal,
        statistics.median(values),
        min(values),
        max(values),
        None if floors is None else statistics.median(floors),
        None if floors is None else statistics.median(map(_over, values, floors)),
    )


def _over(value: float, floor: float) -> float:
    return value / floor if floor else float("nan")


def as_markdown(measured: Measured) -> str:
    """The table, with what has to be known to read it."""
    head = ["Work", "Unit", "Goal", "Median", "Least – most", "Floor", "× floor"]
    body = [
        [
            line.label,
            line.unit,
            line.goal,
            _figure(line.median),
            f"{_figure(line.least)} – {_figure(line.most)}",
            "" if line.floor is None else _figure(line.floor),
            "" if line.ratio is None else _figure(line.ratio),
        ]
        for line in lines(measured)
    ]
    return f"{_machine(measured)}\n\n{_table(head, body)}"


def as_json(measured: Measured) -> dict[str, Any]:
    """Everything: the table's lines, and the samples that they are made of."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _machine(measured),
        "rounds": measured.rounds,
        "foreign_cores": measured.foreign_cores,
        "lines": [asdict(line) for line in lines(measured)],
        "samples": measured.samples,
    }


def _machine(measured: Measured) -> str:
    return (
        f"{measured.rounds} rounds on {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{platform.system()}; {measured.foreign_cores:.2f} cores were busy with other things."
    )


def _figure(value: float) -> str:
    """Three digits that count."""
    if value == 0 or math.isnan(value):
        return "0" if value == 0 else "–"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 3)}f}"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    rows = [head, ["-" * width for width in widths], *body]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )
