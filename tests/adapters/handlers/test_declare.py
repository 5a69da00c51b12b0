"""What is a handler, and what handlers are given."""

from __future__ import annotations

from typing import Any

import pytest

from app.adapters.handlers.declare import ARGUMENTS, Handlers, InvalidHandler, Members, methods_of


class Alert:
    """A handler of the plainest kind."""

    def on_error(self, error: Any, will_retry: bool, will_fallback: bool) -> None:
        """Be told of an error."""

    async def on_complete(self, state: Any, *, run: Any) -> None:
        """Be told of the end."""

    def __call__(self) -> None:
        """Not a callback."""


class Asynchronous:
    """A callable that is a coroutine function without looking like one."""

    async def __call__(self, text: str) -> None:
        """Be told of a token."""


def test_any_object_with_methods_of_these_names_is_a_handler() -> None:
    methods = methods_of(Alert())
    assert {name: (m.takes_run, m.on_loop) for name, m in methods.items()} == {
        "on_error": (False, False),
        "on_complete": (True, True),
    }


def test_functions_make_one_too() -> None:
    methods = methods_of(
        Handlers(
            on_token=Asynchronous(),
            on_start=lambda a, r, f: None,
            on_retry=lambda *args, **kwargs: None,
            on_abort=lambda token_count, content_length, run: None,
            on_timeout=lambda kind, seconds, more=None: None,
            on_event=[].append,
            on_resume=max,
        )
    )
    assert {name: (m.takes_run, m.on_loop) for name, m in methods.items()} == {
        "on_token": (False, True),
        "on_start": (False, False),
        "on_retry": (True, False),
        "on_abort": (True, False),
        "on_timeout": (False, False),
        "on_event": (False, False),
        "on_resume": (False, False),
    }


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (object(), "has no method named after a callback"),
        (Handlers(), "has no method named after a callback"),
        (3, "has no method"),
        (Alert, "is a class"),
        (Handlers(on_start="x"), "on_start is no function"),  # type: ignore[arg-type]
        (Handlers(on_start=lambda attempt: None), "on_start has to take attempt, is_retry, is_fallback"),
        (Handlers(on_token=lambda text, more: None), "on_token has to take text"),
        (Handlers(on_token=lambda *, text: None), "on_token has to take text"),
    ],
)
def test_what_cannot_be_called_is_refused(handler: Any, words: str) -> None:
    with pytest.raises(InvalidHandler, match=words):
        methods_of(handler)


def test_the_arguments_of_every_callback_are_names() -> None:
    assert all(name.isidentifier() for names in ARGUMENTS.values() for name in names)


def test_members_are_read_by_their_names_in_either_spelling() -> None:
    state = Members({"tokenCount": 3, "content": None})
    assert (state["tokenCount"], state.tokenCount, state.token_count, state.content) == (3, 3, 3, None)
    assert dict(state) == {"tokenCount": 3, "content": None}
    assert len(state) == 2
    assert not hasattr(state, "checkpoint")
    with pytest.raises(AttributeError):
        state.content = "x"  # type: ignore[attr-defined]
