"""Guardrails that are Python functions: what they may be, what they may say, and how they may fail."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from app.adapters.guardrails.python import (
    MAX_FINDINGS,
    THREADS,
    Guardrail,
    InvalidGuardrail,
    PythonGuardrails,
)
from app.ports.guardrails import GuardrailFailed
from examples.guardrails import GUARDRAILS

pytestmark = pytest.mark.anyio


def nothing(text: str, final: bool) -> None:
    """Be content."""


def giving(value: Any) -> Callable[[str, bool], Any]:
    def give(text: str, final: bool) -> Any:
        return value

    return give


async def judged(
    func: Callable[..., Any], text: str = "abc", *, final: bool = True
) -> Sequence[Mapping[str, Any]]:
    guardrails = PythonGuardrails([Guardrail("rule", func)])
    try:
        return await guardrails.call("rule", text, final=final)
    finally:
        guardrails.close()


FULL = {"message": "m", "severity": "fatal", "recoverable": False, "position": 3, "suggestion": "s"}


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"message": message, "recoverable": True, **more}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, []),
        ([], []),
        ((), []),
        ("too rude", [said("too rude")]),
        (["too rude", "too long"], [said("too rude"), said("too long")]),
        ({"message": "m"}, [said("m")]),
        ([FULL], [FULL]),
        ([{"message": "m", "severity": None, "position": 0}], [said("m", position=0)]),
        ("a\0b\ud800", [said("a\ufffdb\ufffd")]),
        (["m"] * MAX_FINDINGS, [said("m")] * MAX_FINDINGS),
        (iter(["m"]), [said("m")]),
    ],
)
async def test_findings(given: Any, found: list[dict[str, Any]]) -> None:
    assert await judged(giving(given)) == found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "no finding"),
        ([3], "no finding"),
        ([None], "no finding"),
        ("", "message: String should have at least 1 character"),
        ("x" * 2_001, "message: String should have at most 2000 characters"),
        ({}, "message: Field required"),
        ({"message": 3}, "message: Input should be a valid string"),
        ({"message": "m", "severity": "grave"}, "severity: Input should be 'warning', 'error' or 'fatal'"),
        ({"message": "m", "recoverable": "no"}, "recoverable: Input should be a valid boolean"),
        ({"message": "m", "position": True}, "position: Input should be a valid integer"),
        ({"message": "m", "position": -1}, "position: Input should be greater"),
        ({"message": "m", "rule": "other"}, "rule: Extra inputs are not permitted"),
        ({3: "m"}, "no finding"),
        (["m"] * (MAX_FINDINGS + 1), f"{MAX_FINDINGS + 1} findings"),
    ],
)
async def test_nonsense_is_no_verdict(given: Any, words: str) -> None:
    with pytest.raises(GuardrailFailed) as failure:
        await judged(giving(given))
    assert words in str(failure.value)


async def test_they_are_told_the_text_and_whether_it_is_whole() -> None:
    def tell(text: str, final: bool) -> str:
        return f"{text} {final}"

    assert await judged(tell, "so far", final=False) == [said("so far False")]
    assert await judged(tell, "all of it", final=True) == [said("all of it True")]


class Caller:
    """Called like a function."""

    async def __call__(self, text: str, final: bool) -> str:
        return threading.current_thread().name


async def on_loop(text: str, final: bool) -> str:
    return threading.current_thread().name


def in_thread(text: str, final: bool) -> str:
    return threading.current_thread().name


def generated(text: str, final: bool) -> Iterator[str]:
    yield threading.current_thread().name


def deferred(text: str, final: bool) -> Any:
    return on_loop(text, final)


@pytest.mark.parametrize("func", [on_loop, Caller(), deferred, partial(on_loop)])
async def test_coroutines_run_on_the_loop(func: Callable[..., Any]) -> None:
    assert await judged(func) == [said(threading.current_thread().name)]


@pytest.mark.parametrize("func", [in_thread, generated])
async def test_plain_functions_run_in_a_thread(func: Callable[..., Any]) -> None:
    [finding] = await judged(func)
    assert finding["message"].startswith("guardrail-rule-")


def raising(error: BaseException) -> Callable[[str, bool], Any]:
    def fail(text: str, final: bool) -> Any:
        raise error

    return fail


def raising_later(error: BaseException) -> Callable[[str, bool], Any]:
    async def fail(text: str, final: bool) -> Any:
        raise error

    return fail


def broken_off(text: str, final: bool) -> Iterator[str]:
    yield "first"
    raise LookupError("second")


@pytest.mark.parametrize("kind", [raising, raising_later])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("why"), "ValueError: why"),
        (ValueError(), "ValueError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("x" * 1_000), "ValueError: xxx"),
    ],
)
async def test_what_they_raise_is_no_verdict(
    kind: Callable[[BaseException], Callable[..., Any]], error: BaseException, words: str
) -> None:
    with pytest.raises(GuardrailFailed) as failure:
        await judged(kind(error))
    assert str(failure.value).startswith(words)
    assert len(str(failure.value)) <= 220


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (broken_off, "LookupError: second"),
        (raising_later(asyncio.CancelledError()), "cancelled from within"),
        (raising(StopIteration("end")), "StopIteration: end"),
    ],
)
async def test_odd_ends_are_no_verdict(func: Callable[..., Any], words: str) -> None:
    with pytest.raises(GuardrailFailed, match=words):
        await judged(func)


async def test_a_rule_that_is_not_there_is_named() -> None:
    with pytest.raises(GuardrailFailed, match="'other'"):
        await PythonGuardrails([]).call("other", "", final=True)


RELEASE = threading.Event()
"""Lets `hang` and `stubborn` go."""


@contextlib.contextmanager
def hanging() -> Iterator[None]:
    """For the block; before the event loop ends, it all has to end."""
    RELEASE.clear()
    try:
        yield
    finally:
        RELEASE.set()


def hang(text: str, final: bool) -> None:
    RELEASE.wait(60)


async def never(text: str, final: bool) -> None:
    await asyncio.Event().wait()


async def stubborn(text: str, final: bool) -> None:
    while not RELEASE.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await never(text, final)


@pytest.mark.parametrize("func", [hang, never, stubborn])
async def test_what_hangs_is_given_up(func: Callable[..., Any]) -> None:
    guardrails = PythonGuardrails([Guardrail("rule", func)], time_limit_s=0.01)
    with hanging():
        for _ in range(THREADS + 1):
            with pytest.raises(GuardrailFailed, match=r"no verdict within 0.01 s"):
                await guardrails.call("rule", "", final=True)
    guardrails.close()


async def test_what_hangs_takes_no_thread_from_others() -> None:
    guardrails = PythonGuardrails([Guardrail("hang", hang), Guardrail("quick", giving("m"))], time_limit_s=60)
    with hanging():
        stuck = [asyncio.create_task(guardrails.call("hang", "", final=True)) for _ in range(THREADS + 1)]
        await asyncio.sleep(0)
        assert await guardrails.call("quick", "", final=True) == [said("m")]
        assert not any(task.done() for task in stuck)
    assert await asyncio.gather(*stuck) == [[]] * (THREADS + 1)
    guardrails.close()


async def test_a_cancelled_judgement_ends_at_once() -> None:
    cancelled = asyncio.Event()
    began = asyncio.Event()

    async def never(text: str, final: bool) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    task = asyncio.create_task(judged(never))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await cancelled.wait()


NO_FUNCTION: Any = 3


@pytest.mark.parametrize(
    ("guardrail", "words"),
    [
        (Guardrail("", nothing), "is no name"),
        (Guardrail("a b", nothing), "is no name"),
        (Guardrail("x" * 65, nothing), "is no name"),
        (Guardrail("rule", NO_FUNCTION), "has no function"),
    ],
)
def test_declarations_that_make_no_sense(guardrail: Guardrail, words: str) -> None:
    with pytest.raises(InvalidGuardrail, match=words) as refused:
        PythonGuardrails([guardrail])
    assert repr(guardrail.name) in str(refused.value)


def test_names_are_taken_once() -> None:
    with pytest.raises(InvalidGuardrail, match="'rule' is declared twice"):
        PythonGuardrails([Guardrail("rule", nothing)] * 2)


def test_the_core_gets_rules() -> None:
    guardrails = PythonGuardrails([Guardrail("rule", nothing, streaming=True, severity="fatal"), *GUARDRAILS])
    rules = guardrails.rules
    assert list(rules) == ["rule", "card_numbers", "ends_a_sentence"]
    rule, sentence = rules["rule"], rules["ends_a_sentence"]
    assert (rule.title, rule.in_stream, rule.usual, rule.chosen) == ("rule", True, "fatal", None)
    assert (sentence.in_stream, sentence.usual) == (False, "warning")


@pytest.mark.parametrize(
    ("rule", "text", "found"),
    [
        ("card_numbers", "Use 4111 1111 1111 1111.", [4]),
        ("card_numbers", "Use 4111 1111 1111 1112.", []),
        ("card_numbers", "Call 030 1234567.", []),
        ("ends_a_sentence", "Done. ", []),
        ("ends_a_sentence", "And then", [None]),
    ],
)
async def test_the_examples(rule: str, text: str, found: list[int | None]) -> None:
    guardrails = PythonGuardrails(GUARDRAILS)
    findings = await guardrails.call(rule, text, final=True)
    assert [finding.get("position") for finding in findings] == found
    guardrails.close()
