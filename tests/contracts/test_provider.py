"""What holds for every provider: the same script, replayed or sent by a model server, is the same answer."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

import app.adapters.providers
from app.adapters.checked_network import CheckedNetwork
from app.adapters.command_model.command import Command, command_of
from app.adapters.command_model.provider import CommandProvider
from app.adapters.http_client import model_client
from app.core.addresses import AddressRule
from app.core.chunks import Chunk, EndMark, FinishReason, KeepAlive, TextDelta, ToolCallDelta
from app.core.discovery import discover
from app.core.errors import Invalid
from app.core.faults import FaultKind, ProviderError
from app.ports.provider import ModelEndpoint, Opening, Provider
from tests.support import bedrock_wire, chat_wire, commands, gemini_wire, messages_wire
from tests.support.answers import Answer, ask, opening
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until

pytestmark = pytest.mark.anyio

Steps = Sequence[dict[str, Any]]
LONG_MS = 3_600_000

WIRES: dict[str, Callable[[Steps], Attempt]] = {
    "anthropic": messages_wire.attempt,
    "bedrock": bedrock_wire.attempt,
    "gemini": gemini_wire.attempt,
    "openai": chat_wire.attempt,
}
"""What a server must send to behave like a script, by provider."""


class Stage(Protocol):
    """A provider with a model behind it that behaves as told."""

    provider: Provider
    streams_calls: bool
    """Whether calls can come in fragments."""
    says_refusals: bool
    """Whether the wire tells a refusal from other text."""
    ends_without_reason: bool
    """Whether an answer can be whole without a reason to stop."""
    has_options: bool
    """Whether its endpoints have options that say what they take natively."""

    def plays(self, *attempts: Steps) -> Callable[[int], Opening]:
        """Have the model behave so; gives the opening of an attempt, 1-based."""

    def was_asked(self) -> bool:
        """Whether the model knows that it is wanted."""

    def is_free(self) -> bool:
        """Whether nothing is held open towards the model, and the model is not busy."""


class ScriptedStage:
    """The script itself."""

    streams_calls = says_refusals = ends_without_reason = has_options = True

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._before: set[asyncio.Task[Any]] = set()

    def plays(self, *attempts: Steps) -> Callable[[int], Opening]:
        self._before = asyncio.all_tasks()
        options = {"streams": [{"attempts": [list(steps) for steps in attempts]}]}
        self.provider.check(opening("scripted", options=options).endpoint)
        return lambda attempt: opening("scripted", options=options, attempt=attempt)

    def was_asked(self) -> bool:
        return True

    def is_free(self) -> bool:
        return asyncio.all_tasks() <= self._before


class WireStage:
    """A model server that sends the script over the provider's wire."""

    has_options = True

    def __init__(self, provider: Provider, server: ModelServer) -> None:
        self.provider = provider
        self._server = server
        self.streams_calls = provider.name != "gemini"
        self.says_refusals = self.ends_without_reason = provider.name in ("openai", "anthropic")

    def plays(self, *attempts: Steps) -> Callable[[int], Opening]:
        name = self.provider.name
        self._server.scripts["m"] = [WIRES[name](steps) for steps in attempts]
        what = opening(name, base_url=self._server.base_url)
        self.provider.check(what.endpoint)
        return lambda attempt: opening(name, base_url=self._server.base_url, attempt=attempt)

    def was_asked(self) -> bool:
        return bool(self._server.requests)

    def is_free(self) -> bool:
        return len(self._server.requests) == self._server.answered + len(self._server.left_early)


class CommandStage:
    """A command that says the script."""

    streams_calls = has_options = False
    says_refusals = ends_without_reason = True

    def __init__(self, provider: CommandProvider, known: dict[str, Command], folder: Path) -> None:
        self.provider: Provider = provider
        self._known = known
        self._folder = folder

    def plays(self, *attempts: Steps) -> Callable[[int], Opening]:
        played = commands.plays(self._folder, *attempts, native_tools=True)
        self._known["m"] = command_of(played, os.environ)
        self.provider.check(opening("command").endpoint)
        return lambda attempt: opening("command", attempt=attempt)

    def was_asked(self) -> bool:
        return commands.runs(self._folder) > 0

    def is_free(self) -> bool:
        return commands.all_gone(self._folder)


@asynccontextmanager
async def stages(name: str, folder: Path) -> AsyncIterator[Stage]:
    if name == "command":
        known: dict[str, Command] = {}
        async with CommandProvider(known) as commanding:
            yield CommandStage(commanding, known, folder)
        return
    async with ModelServer() as server, model_client() as client:
        provider: Provider = discover(app.adapters.providers, "PROVIDER")[name](client)
        yield ScriptedStage(provider) if name == "scripted" else WireStage(provider, server)


@pytest.fixture(params=["command", *sorted(discover(app.adapters.providers, "PROVIDER"))])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stages(request.param, tmp_path) as stage:
        yield stage


async def answered(stage: Stage, *attempts: Steps, attempt: int = 1) -> Answer:
    return await ask(stage.provider, stage.plays(*attempts)(attempt))


async def test_it_has_a_name_and_says_which_wire_it_reads(stage: Stage) -> None:
    # A command is the operator's: it is not among the providers that a registered model can name.
    named = stage.provider.name in discover(app.adapters.providers, "PROVIDER")
    assert named is (stage.provider.name != "command")
    wire = {"scripted": "openai"}.get(stage.provider.name, stage.provider.name)
    assert stage.provider.adapter_id == wire


async def test_a_plain_answer(stage: Stage) -> None:
    steps: Steps = [
        {"text": "Hello"},
        {"text": " wörld 🦦"},
        {"usage": {"input_tokens": 3, "output_tokens": 4}},
        {"end": "stop"},
    ]
    answer = await answered(stage, steps)
    assert (answer.opened, answer.fault) == (True, None)
    assert (answer.text, answer.finish, answer.ended) == ("Hello wörld 🦦", "stop", True)
    assert answer.usage == (3, 4)


async def test_pieces_stay_pieces_and_the_end_mark_is_last(stage: Stage) -> None:
    answer = await answered(stage, [{"text": "a"}, {"text": "b"}, {"end": "length"}])
    said: list[Chunk] = [chunk for chunk in answer.chunks if not isinstance(chunk, KeepAlive)]
    *pieces, finish, end = said
    assert pieces == [TextDelta("a"), TextDelta("b")]
    assert isinstance(finish, FinishReason)
    assert (finish.reason, end) == ("length", EndMark())


async def test_reasoning_is_no_text(stage: Stage) -> None:
    answer = await answered(stage, [{"reasoning": "hm"}, {"text": "so"}, {"end": "stop"}])
    assert (answer.text, answer.reasoning) == ("so", "hm")


async def test_a_refusal_is_no_text(stage: Stage) -> None:
    if not stage.says_refusals:
        pytest.skip("the wire has no refusals")
    answer = await answered(
        stage, [{"reasoning": "hm"}, {"refusal": "I"}, {"refusal": " won't"}, {"end": "stop"}]
    )
    assert (answer.text, answer.reasoning, answer.refusal) == ("", "hm", "I won't")


async def test_tool_calls_are_put_together(stage: Stage) -> None:
    steps: Steps = [
        {"tool_call": {"index": 0, "id": "x", "name": "add", "arguments": '{"a": 1'}},
        {"tool_call": {"index": 1, "id": "y", "name": "now", "arguments": ""}},
        {"tool_call": {"index": 0, "arguments": ', "b": 2}'}},
        {"end": "tool_calls"},
    ]
    answer = await answered(stage, steps)
    called = [(name, json.loads(arguments or "{}")) for name, arguments in answer.called]
    assert called == [("add", {"a": 1, "b": 2}), ("now", {})]
    fragments = sum(isinstance(chunk, ToolCallDelta) for chunk in answer.chunks)
    assert (fragments > len(called)) is stage.streams_calls
    assert [call.id for call in answer.calls.values()] == ["x", "y"]
    assert answer.finish == "tool_calls"


async def test_an_end_without_a_reason(stage: Stage) -> None:
    if not stage.ends_without_reason:
        pytest.skip("the reason is the wire's only sign of the end")
    answer = await answered(stage, [{"text": "a"}, {"end": None}])
    assert (answer.ended, answer.finish_raw) == (True, None)


async def test_a_cut_answer_ends_without_end_mark_and_without_fault(stage: Stage) -> None:
    answer = await answered(stage, [{"text": "half"}])
    assert (answer.text, answer.ended, answer.finish_raw, answer.fault) == ("half", False, None, None)


@pytest.mark.parametrize("before", [[], [{"open_wait_ms": 1}]], ids=["at once", "after a wait"])
@pytest.mark.parametrize(
    "error", [{"kind": "status", "status": 503}, {"kind": "network"}], ids=["status", "network"]
)
async def test_an_error_first_fails_the_opening(stage: Stage, before: Steps, error: dict[str, Any]) -> None:
    answer = await answered(stage, [*before, {"error": error}])
    assert not answer.opened
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.status) == (error["kind"], error.get("status"))
    await until(stage.is_free)


@pytest.mark.parametrize("kind", ["network", "malformed", "in_stream"])
async def test_an_error_later_comes_after_what_was_said(stage: Stage, kind: str) -> None:
    answer = await answered(stage, [{"text": "a"}, {"wait_ms": 20}, {"error": {"kind": kind, "status": 500}}])
    assert (answer.opened, answer.text, answer.ended) == (True, "a", False)
    assert answer.fault is not None
    assert answer.fault.kind == FaultKind(kind)
    await until(stage.is_free)


async def test_every_attempt_behaves_as_its_turn_says(stage: Stage) -> None:
    open_attempt = stage.plays(
        [{"error": {"kind": "status", "status": 503}}], [{"text": "a"}, {"end": "stop"}]
    )
    assert [(await ask(stage.provider, open_attempt(n))).text for n in (1, 2, 3)] == ["", "a", "a"]


async def test_leaving_in_the_middle_frees_the_model(stage: Stage) -> None:
    what = stage.plays([{"text": "a"}, {"wait_ms": LONG_MS}, {"text": "b"}])(1)
    async with stage.provider.open(what) as batches:
        async for batch in batches:
            if TextDelta("a") in batch:
                break
    await until(stage.is_free)


async def test_an_exception_in_the_middle_frees_the_model_and_passes(stage: Stage) -> None:
    what = stage.plays([{"text": "a"}, {"wait_ms": LONG_MS}])(1)

    async def stumble() -> None:
        async with stage.provider.open(what) as batches:
            async for _ in batches:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await stumble()
    await until(stage.is_free)


@pytest.mark.parametrize(
    "steps",
    [[{"open_wait_ms": LONG_MS}], [{"wait_ms": LONG_MS}], [{"text": "a"}, {"wait_ms": LONG_MS}]],
    ids=["opening", "first chunk", "next chunk"],
)
async def test_a_cancelled_wait_frees_the_model(stage: Stage, steps: Steps) -> None:
    what = stage.plays(steps)(1)
    heard = Answer()

    async def listen() -> None:
        async with stage.provider.open(what) as batches:
            heard.opened = True
            async for batch in batches:
                heard.take(batch)

    listening = asyncio.create_task(listen())
    opens, speaks = "open_wait_ms" not in steps[0], "text" in steps[0]
    await until(lambda: stage.was_asked() and heard.opened == opens and bool(heard.text) == speaks)
    listening.cancel()
    await asyncio.wait([listening])
    assert listening.cancelled()
    await until(stage.is_free)


async def test_many_at_once_do_not_mix(stage: Stage) -> None:
    attempts: list[Steps] = [
        [{"text": f"{n}"}, {"wait_ms": 5}, {"text": f"-{n}"}, {"end": "stop"}] for n in range(20)
    ]
    open_attempt = stage.plays(*attempts)
    answers = await asyncio.gather(*(ask(stage.provider, open_attempt(n + 1)) for n in range(20)))
    assert sorted(answer.text for answer in answers) == sorted(f"{n}-{n}" for n in range(20))


async def test_unknown_options_are_refused_by_pointer(stage: Stage) -> None:
    endpoint = stage.plays([{"end": "stop"}])(1).endpoint
    odd = ModelEndpoint(
        "m", endpoint.provider, "m", endpoint.base_url, options={**endpoint.options, "odd/one": 1}
    )
    with pytest.raises(Invalid) as caught:
        stage.provider.check(odd)
    assert [(error.pointer, error.code) for error in caught.value.errors] == [
        ("/options/odd~1one", "unknown_field")
    ]


async def test_capabilities_are_native_unless_the_options_say_otherwise(stage: Stage) -> None:
    if not stage.has_options:
        pytest.skip("it has no options")
    endpoint = stage.plays([{"end": "stop"}])(1).endpoint
    takes = stage.provider.capabilities(endpoint)
    assert (takes.tools, takes.response_schema) == (True, True)
    options = {**endpoint.options, "native_tools": False, "native_schema": False}
    modest = ModelEndpoint("m", endpoint.provider, "m", endpoint.base_url, options=options)
    stage.provider.check(modest)
    takes = stage.provider.capabilities(modest)
    assert (takes.tools, takes.response_schema) == (False, False)


async def test_nothing_but_provider_errors_comes_out(stage: Stage) -> None:
    what = stage.plays([{"error": {"kind": "network"}}])(1)
    with pytest.raises(ProviderError):
        async with stage.provider.open(what):
            pytest.fail("it was opened")


@pytest.mark.parametrize("name", WIRES)
async def test_a_private_address_is_reached_for_the_operator_alone(name: str) -> None:
    network = CheckedNetwork(AddressRule().admits)
    async with ModelServer() as server, model_client(network=network) as client:
        server.scripts["m"] = [WIRES[name]([{"text": "hello"}, {"end": "stop"}])]
        provider: Provider = discover(app.adapters.providers, "PROVIDER")[name](client)
        clients = opening(name, base_url=server.base_url)
        refused = await ask(provider, clients)
        assert refused.fault is not None
        assert "may not be reached" in refused.fault.message
        assert server.connections == 0
        operators = replace(clients, endpoint=replace(clients.endpoint, trusted=True))
        assert (await ask(provider, operators)).text == "hello"


@pytest.mark.parametrize("name", WIRES)
async def test_an_answer_that_does_not_end_is_read_as_far_as_it_may_be_long(name: str) -> None:
    async with ModelServer() as server, model_client() as client:
        steps: Steps = [*[{"text": "x" * 100}] * 500, {"wait_ms": LONG_MS}]
        server.scripts["m"] = [replace(WIRES[name](steps), write_size=1_000)]
        provider: Provider = discover(app.adapters.providers, "PROVIDER")[name](client)
        what = opening(name, base_url=server.base_url, options={"max_answer_bytes": 10_000})
        provider.check(what.endpoint)
        answer = await ask(provider, what)
        await until(lambda: server.left_early)
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.type) == (FaultKind.MALFORMED, "too_large")
    assert "10000 bytes" in answer.fault.message
    assert 0 < len(answer.text) < 10_000
