"""What holds for every kind of tool that is run: the same function, wherever it is, is the same tool."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from uuid import UUID

import mcp_types as types
import pytest
from aiohttp import web

from app.adapters.ambient import SystemClock
from app.adapters.mcp.peers import Peers
from app.adapters.tools.http import HttpTools
from app.adapters.tools.mcp import McpTools
from app.adapters.tools.python import PythonTools, Tool
from app.core import json_text
from app.core.action.jsonable import output_of
from app.core.http_tool import HttpSettings
from app.ports.tool import Invocation, ToolRunner, ToolSpec
from tests.support.credentials import FakeCredentials
from tests.support.mcp_server import WAYS, Offer, failed
from tests.support.network import ANYWHERE, unsigned
from tests.support.polling import until

pytestmark = pytest.mark.anyio

RUN, BRANCH, PROJECT = (UUID(int=n) for n in (1, 2, 3))
VALUES: list[Any] = [
    *(None, False, True, 0, "", "text", 1.5, [], {}, [None], 2**70, -(2**63)),
    {"": {"deep": [1, "ä😀", None]}},
]


@dataclass
class Subject:
    """The function that is called; each of its names behaves in its own way."""

    value: Any = None
    calls: list[tuple[str, Any]] = field(default_factory=list)
    waiting: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def give(self, **arguments: Any) -> Any:
        self.calls.append(("give", copy.deepcopy(arguments)))
        return self.value

    async def echo(self, **arguments: Any) -> Any:
        return arguments

    async def fail(self, **arguments: Any) -> Any:
        raise ValueError("the stock is empty")

    async def wait(self, **arguments: Any) -> Any:
        self.waiting += 1
        try:
            await self.release.wait()
        finally:
            self.waiting -= 1
        return arguments


NAMES = ("give", "echo", "fail", "wait")
ANYTHING = {"type": "object"}


class Stage(Protocol):
    """A runner, and what it runs."""

    subject: Subject

    @property
    def runner(self) -> ToolRunner:
        """What is held to the contract."""

    def spec(self, name: str) -> ToolSpec:
        """The tool of this name."""


@dataclass
class PythonStage:
    """The functions themselves."""

    subject: Subject
    runner: PythonTools

    def spec(self, name: str) -> ToolSpec:
        return self.runner.specs[name]


@dataclass
class HttpStage:
    """A server that calls the functions."""

    subject: Subject
    runner: HttpTools
    url: str

    def spec(self, name: str) -> ToolSpec:
        return ToolSpec(name, "http", "", ANYTHING, settings=HttpSettings(self.url).settings())


async def answer(subject: Subject, request: web.BaseRequest) -> web.StreamResponse:
    """One call."""
    asked = json_text.read(await request.read())
    try:
        output = await getattr(subject, asked["function"])(**asked["arguments"])
    except ValueError as error:
        return web.Response(status=500, body=json_text.dumps({"error": str(error)}))
    return web.Response(body=json_text.dumps(output), content_type="application/json")


@asynccontextmanager
async def over_http(subject: Subject) -> AsyncIterator[Stage]:
    server = web.Server(lambda request: answer(subject, request), handler_cancellation=True)
    listening = web.ServerRunner(server, shutdown_timeout=0.1)
    await listening.setup()
    await web.TCPSite(listening, "127.0.0.1", 0).start()
    runner = HttpTools(ANYWHERE, {}, FakeCredentials(), unsigned())
    try:
        yield HttpStage(subject, runner, f"http://127.0.0.1:{listening.addresses[0][1]}/")
    finally:
        await runner.aclose()
        await listening.cleanup()


@asynccontextmanager
async def in_process(subject: Subject) -> AsyncIterator[Stage]:
    runner = PythonTools(Tool(name, getattr(subject, name), parameters=ANYTHING) for name in NAMES)
    yield PythonStage(subject, runner)
    runner.close()


@dataclass
class McpStage:
    """An MCP server that calls the functions."""

    subject: Subject
    runner: McpTools
    specs: Mapping[str, ToolSpec]

    def spec(self, name: str) -> ToolSpec:
        return self.specs[f"mcp__offer__{name}"]


@asynccontextmanager
async def over_mcp(way: str, subject: Subject) -> AsyncIterator[Stage]:
    offer = Offer()

    async def answer(name: str, **arguments: Any) -> types.CallToolResult:
        try:
            output = await getattr(subject, name)(**arguments)
        except ValueError as error:
            return failed(str(error))
        return types.CallToolResult(content=[], structured_content=output)

    for name in NAMES:
        offer.add(name, partial(answer, name))
    async with WAYS[way](offer) as server:
        peers = Peers(ANYWHERE, {}, FakeCredentials(), {}, SystemClock())
        try:
            yield McpStage(subject, McpTools(peers), await peers.tools(None, server))
        finally:
            await peers.aclose()


STAGES: dict[str, Callable[[Subject], Any]] = {
    "python": in_process,
    "http": over_http,
    **{way: partial(over_mcp, way) for way in WAYS},
}


@pytest.fixture(params=STAGES)
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with STAGES[request.param](Subject()) as made:
        yield made


def invocation(name: str, arguments: dict[str, Any], call_id: int = 9) -> Invocation:
    return Invocation(UUID(int=call_id), name, arguments, RUN, BRANCH, PROJECT)


async def call(stage: Stage, name: str, **arguments: Any) -> Any:
    return await stage.runner.call(stage.spec(name), invocation(name, arguments))


async def test_it_says_which_kind_it_runs(stage: Stage) -> None:
    assert stage.runner.kind == stage.spec("give").kind


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_a_result_is_what_the_tool_gave(stage: Stage, value: Any) -> None:
    stage.subject.value = value
    given = await call(stage, "give")
    assert (given, type(given)) == (value, type(value))
    assert output_of(given).value == value


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_arguments_come_as_they_are(stage: Stage, value: Any) -> None:
    arguments = {"value": value, "ключ": "\u2028"}
    assert await call(stage, "echo", **arguments) == arguments


async def test_a_tool_is_called_once_for_a_call(stage: Stage) -> None:
    await call(stage, "give", a=1)
    assert stage.subject.calls == [("give", {"a": 1})]


async def test_what_the_tool_does_to_its_arguments_is_its_own_affair(stage: Stage) -> None:
    arguments = {"list": [1]}
    given = await call(stage, "echo", **arguments)
    given["list"].append(2)
    assert arguments == {"list": [1]}


async def test_a_failure_is_raised_with_the_tools_words(stage: Stage) -> None:
    with pytest.raises(Exception, match="the stock is empty"):
        await call(stage, "fail")


async def test_calls_at_once_do_not_mix(stage: Stage) -> None:
    tasks = [asyncio.create_task(call(stage, "wait", n=n)) for n in range(40)]
    await until(lambda: stage.subject.waiting == len(tasks))
    stage.subject.release.set()
    assert [await task for task in tasks] == [{"n": n} for n in range(40)]


async def test_a_cancelled_call_ends_and_takes_the_tool_with_it(stage: Stage) -> None:
    task = asyncio.create_task(call(stage, "wait"))
    await until(lambda: stage.subject.waiting == 1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await until(lambda: stage.subject.waiting == 0)
    stage.subject.value = "still here"
    assert await call(stage, "give") == "still here"
