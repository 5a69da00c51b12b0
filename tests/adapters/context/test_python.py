"""Context providers in the process: each adds what it can, and none of them can do harm."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from app.adapters.context.python import (
    ContextProvider,
    InvalidContextProvider,
    PythonContext,
    load_context_providers,
)
from app.ports.context import ContextProviders, Turn
from tests.support.context import CONTEXT_PROVIDERS, TOLD

pytestmark = pytest.mark.anyio

RUN = UUID(int=3)
RESPONSES: list[dict[str, Any]] = [
    {"function": "add", "output": 3, "error": None},
    {"function": "add", "error": "E: no"},
]


def turn() -> Turn:
    return Turn(UUID(int=1), UUID(int=2), RUN, "read", "hang", {"a": 1})


async def test_each_adds_what_it_can() -> None:
    providers: ContextProviders = PythonContext(CONTEXT_PROVIDERS, time_limit_s=0.05)
    given = turn()
    added = await providers.provide(given)
    assert dict(added) == {"shelf": {"books": 2, "for": "read"}, "half": "a\ufffdb"}
    assert list(added) == ["shelf", "half"]
    assert given == turn(), "what a provider is given is its own"


async def test_each_is_told_once_of_everything() -> None:
    TOLD.clear()
    await PythonContext(CONTEXT_PROVIDERS).write_back(turn(), RESPONSES)
    assert sorted(TOLD[str(RUN)]) == [("clerk", RESPONSES), ("shelf", RESPONSES)]
    assert len(RESPONSES) == 2


async def test_none_is_none() -> None:
    assert not PythonContext([])
    assert await PythonContext([]).provide(turn()) == {}


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ([ContextProvider("a b", print)], "no name"),
        ([ContextProvider("a")], "no function"),
        ([ContextProvider("a", print), ContextProvider("a", print)], "twice"),
    ],
)
def test_what_cannot_be_used_is_told(declared: list[Any], told: str) -> None:
    with pytest.raises(InvalidContextProvider, match=told):
        PythonContext(declared)


def test_they_are_found_in_modules() -> None:
    assert load_context_providers(["tests.support.context"])[-len(CONTEXT_PROVIDERS) :] == CONTEXT_PROVIDERS
    with pytest.raises(InvalidContextProvider, match="CONTEXT_PROVIDERS"):
        load_context_providers(["tests.support.polling"])
