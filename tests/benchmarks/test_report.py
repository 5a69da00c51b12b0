"""The table: medians, spreads and ratios round by round."""

from __future__ import annotations

import math

from benchmarks.report import ROWS, as_markdown, lines
from benchmarks.rounds import Measured

SAMPLES = {
    "branchline.wait1_ms": [6.0, 9.0, 5.0],
    "direct.wait1_ms": [1.0, 3.0, 0.5],
    "floor.commit_ms": [0.5, 2.0, 1.0],
    "floor.sync_ms": [0.5, 1.0, 0.5],
    "branchline.service_us_per_run": [math.nan, math.nan, math.nan],
}


def test_lines_are_medians_of_rounds() -> None:
    by_label = {line.label: line for line in lines(Measured(3, SAMPLES))}
    gross = by_label["operate, wait, 1 client, p50"]
    assert (gross.least, gross.median, gross.most, gross.floor, gross.ratio) == (5.0, 6.0, 9.0, 1.0, 6.0)
    over = by_label["— over the model's own"]
    assert (over.least, over.median, over.most, over.ratio) == (4.5, 5.0, 6.0, 4.5)


def test_what_was_not_measured_has_no_row() -> None:
    labels = [line.label for line in lines(Measured(3, SAMPLES))]
    assert "— CPU of the service" not in labels
    assert len(labels) == 4


def test_the_table_is_a_table() -> None:
    table = [row for row in as_markdown(Measured(3, SAMPLES)).splitlines() if row.startswith("|")]
    assert len(table) == 2 + 4
    assert len({len(row) for row in table}) == 1


def test_figures_have_one_row_each_for_a_reader() -> None:
    assert len({(row.figure, row.minus) for row in ROWS}) == len(ROWS)
