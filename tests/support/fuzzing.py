"""What fuzz targets share: how much they try, any JSON, and JSON that is nearly right."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

_ASKED: Final = os.environ.get("BRANCHLINE_FUZZ")

EXAMPLES: Final = int(_ASKED or "25")
"""Of each target."""

bounded: Final = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # The few examples of every day are always the same ones; those of a long search are not.
    derandomize=_ASKED is None,
)
"""How a target is searched."""

marks: Final = (
    pytest.mark.slow,
    pytest.mark.timeout(300 + 2 * EXAMPLES),  # for a whole target, on a busy machine
    # Of an example that is large on purpose, and is written out only when it fails.
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
)
"""What every target is marked with."""

# JSON text that no serializer writes, by the string that stands for it until the text is made.
_RAW: Final[Mapping[str, str]] = {
    "\ue000long": "1" * 5_000,
    "\ue000nan": "NaN",
    "\ue000infinite": "-Infinity",
    "\ue000large": "1e999",
    "\ue000half": r'"\ud800"',
    "\ue000other-half": r'"\udc00 x"',
    "\ue000nul": r'"\u0000"',
    "\ue000deep": "[" * 300 + "]" * 300,
    "\ue000deeper": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "\ue000unclosed": "[" * 50_000,
    "\ue000twice": '{"a":1,"a":[]}',
    "\ue000bad": '"\\x"',
    "\ue000bare": '"\t\n"',
    "\ue000wide": '"' + "x" * 100_000 + '"',
}

numbers = st.integers() | st.sampled_from([10**18, -(2**63), 2**64, 10**400]) | st.floats(allow_nan=False)
# One value that is no JSON hides all others of a text, so they are rare.
odd = st.sampled_from([*sorted(_RAW), *(["x"] * 8 * len(_RAW))])
leaves = st.none() | st.booleans() | numbers | st.text(max_size=20) | odd


def json_of(words: st.SearchStrategy[str], *, max_leaves: int = 12) -> st.SearchStrategy[Any]:
    """Any JSON whose members are often called so; `written` makes text of it."""
    names = words | st.text(max_size=8)
    return st.recursive(
        leaves | words,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
        max_leaves=max_leaves,
    )


def written(value: Any) -> str:
    """JSON text, of which a part may be none."""
    text = json.dumps(value, ensure_ascii=False)
    for stands, raw in _RAW.items():
        if stands in text:
            text = text.replace(json.dumps(stands, ensure_ascii=False), raw)
    return text


def encoded(value: Any) -> bytes:
    """The same as bytes."""
    return written(value).encode("utf-8", "surrogatepass")


@st.composite
def nearly(draw: st.DrawFn, value: Any, anything: st.SearchStrategy[Any]) -> Any:
    """The value with up to three of its parts exchanged for anything, left out or doubled."""
    changed = [copy.deepcopy(value)]
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(list(_places(changed))))
        _ALTERATIONS[draw(st.sampled_from(sorted(_ALTERATIONS)))](holder, key, draw(anything))
        if not changed:
            return None
    return changed[0]


def _places(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Where a value holds another: all pairs of a list or an object and an index or a name in it."""
    keys = range(len(holder)) if isinstance(holder, list) else list(holder)
    for key in keys:
        yield holder, key
        if isinstance(holder[key], list | dict):
            yield from _places(holder[key])


def _exchange(holder: Any, key: Any, value: Any) -> None:
    holder[key] = value


def _leave_out(holder: Any, key: Any, value: Any) -> None:
    del holder[key]


def _wrap(holder: Any, key: Any, value: Any) -> None:
    holder[key] = [holder[key], value]


def _double(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    else:
        holder[f"{key}2"] = copy.deepcopy(holder[key])


def _add(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, dict) and isinstance(value, dict):
        holder.update(value)
    else:
        holder[key] = value


_ALTERATIONS: Final[Mapping[str, Callable[[Any, Any, Any], None]]] = {
    "exchange": _exchange,
    "leave out": _leave_out,
    "wrap": _wrap,
    "double": _double,
    "add": _add,
}


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """The bytes with up to four places changed, and perhaps without their end."""
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(raw)))
        length = draw(st.integers(0, 40))
        middle = draw(
            st.binary(max_size=12)
            | st.just(raw[start : start + length] * 2)
            | st.sampled_from(
                [b"", b"\r", b"\n", b"\n\n", b"\0", b"\xff", b"\xef\xbb\xbf", b"data:", b'"', b"{"]
            )
        )
        raw = raw[:start] + middle + raw[start + length :]
    return raw[: draw(st.integers(0, len(raw)))] if draw(st.booleans()) else raw
