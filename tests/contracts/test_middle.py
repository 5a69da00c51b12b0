"""What holds for every middle: one exchange with a model gives one answer, and does nothing else.

A further middle is held to all of it as soon as it is among `MIDDLES`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from app.adapters.providers.scripted import ScriptedProvider
from app.core.chunks import Chunk, EndMark, MessageBreak, TextDelta
from app.core.faults import ProviderError
from app.core.operate.middle import MIDDLE_NAMES
from app.services.middle import MIDDLES
from tests.support import commands
from tests.support.answers import opening
from tests.support.database import migrated
from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running, text_by_offset
from tests.support.tools import CALLS

pytestmark = pytest.mark.anyio

Steps = list[dict[str, Any]]
STAGES = [*((name, "scripted") for name in MIDDLES), (None, "command")]
"""By which middle a model is asked, and what the model is; a command's middle is its kind's."""
LONG_MS = 3_600_000
ANSWER: Steps = [
    {"text": "Hello"},
    {"text": " world"},
    {"usage": {"input_tokens": 3, "output_tokens": 4}},
    {"end": "stop"},
]
FORMAT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

_numbers = count(1)


def saying(value: Any) -> Steps:
    return [{"text": json.dumps(value)}, {"end": "stop"}]


@dataclass
class Stage:
    """A service and a model of it that plays what it is told to."""

    service: Service
    middle: str | None
    kind: str
    folder: Path

    async def plays(self, *attempts: Steps) -> str:
        """A branch whose model behaves so."""
        CALLS.clear()
        if self.kind == "scripted":
            model = await self.service.scripted(f"middle-{next(_numbers)}", *attempts)
        else:
            model = "played"
            for old in self.folder.iterdir():
                old.unlink()
            commands.plays(self.folder, *attempts)
        return await self.service.branch(chat_model=model)

    async def operate(self, branch: str, **body: Any) -> dict[str, Any]:
        """The run at its end."""
        return await self.service.operate(branch, **self._asked(body))

    async def started(self, branch: str, **body: Any) -> str:
        """The id of a run that goes on."""
        return str((await self.service.started(branch, **self._asked(body)))["id"])

    def was_asked(self) -> bool:
        """Whether the model knows that it is wanted."""
        return self.kind == "scripted" or commands.runs(self.folder) > 0

    def is_free(self) -> bool:
        """Whether nothing of the model runs any more."""
        return self.kind == "scripted" or commands.all_gone(self.folder)

    def _asked(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, **({} if self.middle is None else {"middle": self.middle})}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("played")


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer, folder: Path) -> AsyncIterator[Service]:
    played = commands.plays(folder)
    models = {"played": commands.model(played)}
    async with migrated(postgres) as url, running(url, models=models) as made:
        yield made


@pytest.fixture(params=STAGES, ids=[f"{name or 'by kind'}-{kind}" for name, kind in STAGES])
def stage(request: pytest.FixtureRequest, service: Service, folder: Path) -> Stage:
    middle, kind = request.param
    return Stage(service, middle, kind, folder)


async def kinds(stage: Stage, branch: str) -> list[str]:
    return [message["kind"] for message in await stage.service.messages(branch)]


def test_every_middle_has_its_name() -> None:
    assert tuple(MIDDLES) == MIDDLE_NAMES
    assert all(middle.name == name for name, middle in MIDDLES.items())


async def test_one_exchange_gives_one_answer(stage: Stage) -> None:
    branch = await stage.plays(ANSWER)
    run = await stage.operate(branch)
    assert (run["status"], run["result"], run["attempts"]) == ("completed", "Hello world", 1)
    assert (run["usage"]["input_tokens"], run["usage"]["output_tokens"]) == (3, 4)
    assert run["finish_reason"] == "stop"
    events = await stage.service.events(run["id"])
    types = [event["type"] for event in events]
    assert types.count("SESSION_START") == types.count("COMPLETE") == types.count("SESSION_END") == 1
    assert [event["meta"]["text"] for event in events if event["type"] == "TOKEN"] == ["Hello", " world"]
    assert text_by_offset(events) == "Hello world"
    assert await kinds(stage, branch) == ["instruction", "assistant_response"]


async def test_the_conversation_goes_on(stage: Stage) -> None:
    branch = await stage.plays(ANSWER)
    for _ in range(2):
        assert (await stage.operate(branch))["status"] == "completed"
    assert await kinds(stage, branch) == ["instruction", "assistant_response"] * 2


async def test_a_failure_says_nothing_in_the_conversation(stage: Stage) -> None:
    branch = await stage.plays([{"text": "half"}, {"wait_ms": 20}, {"error": {"kind": "in_stream"}}])
    run = await stage.operate(branch, lifecycle={"retry": None})
    assert (run["status"], run["error"]["code"]) == ("failed", "PROVIDER_ERROR")
    assert run["partial_text"] == "half"
    assert await kinds(stage, branch) == []


async def test_what_ends_early_is_asked_again_below_it(stage: Stage) -> None:
    branch = await stage.plays([{"text": "half"}], ANSWER)
    run = await stage.operate(branch, lifecycle={"retry": {"base_delay_ms": 1}})
    assert (run["status"], run["result"], run["attempts"]) == ("completed", "Hello world", 2)
    types = [event["type"] for event in await stage.service.events(run["id"])]
    assert types.count("SESSION_START") == types.count("COMPLETE") == 1


async def test_the_validation_comes_after_it(stage: Stage) -> None:
    branch = await stage.plays(saying({"n": 1}))
    assert (await stage.operate(branch, response_format=FORMAT))["result"] == {"n": 1}
    branch = await stage.plays(saying({"n": "one"}))
    run = await stage.operate(branch, response_format=FORMAT, handle_validation="return_none")
    assert (run["status"], run["result"], run["validation"]["ok"]) == ("completed", None, False)


async def test_it_runs_no_tool_the_service_does(stage: Stage) -> None:
    call = {"function": "note", "arguments": {"text": "x"}}
    answer = saying({"action_required": True, "action_requests": [call]})
    branch = await stage.plays(answer)
    run = await stage.operate(branch, reason=False, actions=True, response_format={"type": "object"})
    assert [response["error"] for response in run["result"]["action_responses"]] == [None]
    assert len(CALLS) == 1
    raw = await stage.operate(await stage.plays(answer), actions=True, skip_validation=True)
    assert json.loads(raw["result"])["action_requests"] == [call]
    assert CALLS == []


@pytest.mark.parametrize("said", [[], [{"text": "half"}]], ids=["silent", "speaking"])
async def test_cancelling_frees_the_model(stage: Stage, said: Steps) -> None:
    branch = await stage.plays([*said, {"wait_ms": LONG_MS}])
    run = await stage.started(branch, lifecycle={"timeout": {"initial_token_ms": None}})
    await until(stage.was_asked)
    if said:
        async for frame in stage.service.stream("GET", f"/v1/runs/{run}/events"):
            if frame.event == "TOKEN":
                break
    await stage.service.http.post(f"/v1/runs/{run}/cancel")
    ended = await stage.service.ended(run)
    assert (ended["status"], ended["result"]) == ("cancelled", None)
    assert await kinds(stage, branch) == []
    await until(stage.is_free)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"inter_token_ms": 50}, "INTER_TOKEN_TIMEOUT"),
        ({"total_ms": 1_000, "inter_token_ms": None}, "DEADLINE_EXCEEDED"),
    ],
)
async def test_limits_free_the_model(stage: Stage, limits: dict[str, Any], code: str) -> None:
    branch = await stage.plays([{"text": "half"}, {"wait_ms": LONG_MS}])
    run = await stage.operate(branch, lifecycle={"timeout": limits, "retry": None})
    assert (run["status"], run["error"]["code"]) == ("failed", code)
    await until(stage.is_free)


# Below the service: the contract of `open`


@pytest.fixture(params=sorted(MIDDLES))
def name(request: pytest.FixtureRequest) -> Any:
    return request.param


def scripted(*steps: dict[str, Any]) -> Any:
    return opening("scripted", options={"streams": [{"attempts": [list(steps)]}]})


async def test_pieces_stay_pieces_and_the_end_is_last(name: Any) -> None:
    async with MIDDLES[name].open(ScriptedProvider(), scripted(*ANSWER)) as batches:
        chunks: list[Chunk] = [chunk async for batch in batches for chunk in batch]
    assert chunks[:2] == [TextDelta("Hello"), TextDelta(" world")]
    assert chunks[-1] == EndMark()
    assert MessageBreak() not in chunks


async def test_errors_pass(name: Any) -> None:
    with pytest.raises(ProviderError):
        async with MIDDLES[name].open(ScriptedProvider(), scripted({"error": {"kind": "network"}})):
            pytest.fail("it was opened")

    async def leave() -> None:
        async with MIDDLES[name].open(
            ScriptedProvider(), scripted({"text": "a"}, {"wait_ms": LONG_MS})
        ) as answer:
            async for _ in answer:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await leave()
