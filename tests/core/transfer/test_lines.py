"""The lines of an export: every column is told or left out on purpose, and logs come back as they were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.db.tables import metadata
from app.core.events.run import RunStarted
from app.core.json_text import dumps, read
from app.core.record import MAX_BLOCK, Entry, EventEntry, TokenBlock
from app.core.transfer.lines import KINDS, EventLine, Line, TokensLine, entry_line

PLACE = {"project_id", "branch_id", "run_id"}
"""What a line's place in the file tells."""
LEFT_OUT = {
    "runs": {"epoch", "owner", "lease_until", "resume", "wake_at", "ready_at", "branch_id", "project_id"},
    "client_calls": {"lease_token", "lease_until", "leased_by", *PLACE},
    "messages": {"project_id", "branch_id"},
    "branches": {"project_id"},
    "attempts": PLACE,
    "function_calls": PLACE,
    "approvals": {"project_id", "run_id"},
}
"""What is no history: whose it is, and what only matters while it goes on."""


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.table], ids=lambda k: k.table)
def test_every_column_is_told_or_left_out_on_purpose(kind: type[Line]) -> None:
    assert kind.table is not None
    columns = {column.name for column in metadata.tables[kind.table].columns}
    assert set(kind.columns()) | LEFT_OUT[kind.table] == columns
    assert not set(kind.columns()) & LEFT_OUT[kind.table]


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.table], ids=lambda k: k.table)
def test_json_columns_are_those_of_the_table(kind: type[Line]) -> None:
    assert kind.table is not None
    columns = metadata.tables[kind.table].columns
    of_json = {
        name for name in kind.columns() if columns[name].type.python_type is dict or _json(columns[name])
    }
    assert kind.json_columns == of_json
    assert kind.json_never_null == {name for name in of_json if not columns[name].nullable}


def _json(column: object) -> bool:
    return type(getattr(column, "type", None)).__name__ in ("JSON", "JSONB")


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
SMALL = st.integers(0, 2**15 - 1)
BLOCKS = st.builds(
    lambda seq, ts, place, tokens: TokenBlock(
        *(seq, ts, place[0], place[1], place[2]),
        [text for text, _ in tokens],
        [0, *(delay for _, delay in tokens[1:])],
    ),
    st.integers(1, 10**9),
    st.integers(0, 10**13),
    st.tuples(SMALL, SMALL, SMALL),
    st.lists(st.tuples(WORDS, st.integers(0, 10**6)), min_size=1, max_size=MAX_BLOCK),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=10,
)


def _event(seq: int, meta: dict[str, Any], callbacks: list[Any]) -> EventEntry:
    texts = (dumps(value).decode() if value else None for value in (meta, callbacks))
    return EventEntry(seq, 7, RunStarted.code, None, None, None, *texts)


EVENTS = st.builds(
    _event,
    st.integers(1, 10**9),
    st.dictionaries(WORDS, VALUES, max_size=3),
    st.lists(st.dictionaries(WORDS, VALUES, max_size=3), max_size=2),
)


@given(BLOCKS | EVENTS)
def test_an_entry_comes_back_as_it_was(entry: Entry) -> None:
    line = entry_line(entry)
    assert b"\n" not in line
    value = read(line)
    model = KINDS[value["object"]].model_validate(value)
    assert isinstance(model, EventLine | TokensLine)
    back = model.entry()
    assert back == entry
