"""Models whose backend is a command of the operator's, as clients see them."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat_wire, commands
from tests.support.commands import PYTHON, is_running
from tests.support.database import migrated
from tests.support.heard import hear, heard, served
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.support.process import serving
from tests.support.service import Service, running
from tests.support.tools import CALLS

pytestmark = pytest.mark.anyio

LONG_MS = 3_600_000
SECRET = "sk-of-the-operator"
FORMAT: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}
PATIENT = {"retry": None, "timeout": {"initial_token_ms": 30_000, "inter_token_ms": 30_000}}

FAMILY = """
import json, os, sys, time
def note(name):
    with open(os.path.join(sys.argv[1], name), "w") as file: file.write(str(os.getpid()))
if os.fork() == 0:
    note("grandchild")
    time.sleep(3600)
note("child")
print(json.dumps({"type": "text", "text": "working"}), flush=True)
time.sleep(3600)
"""
"""A command that starts another process, says something and goes on for ever."""

LEAKS = """
import os, sys
sys.stderr.write("not authorized: " + os.environ["COMMAND_KEY"])
sys.exit(4)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer, folder: Path) -> AsyncIterator[Service]:
    played = commands.plays(folder / "played")
    calling = commands.plays(folder / "calling", native_tools=True)
    family = commands.settings(*PYTHON, "-c", FAMILY, str(folder), grace_s=0.2)
    leaking = commands.settings(*PYTHON, "-c", LEAKS, env=("COMMAND_KEY",))
    models = {
        "played": commands.model(played, lifecycle={"timeout": {"initial_token_ms": 30_000}}),
        "calling": commands.model(calling),
        "family": commands.model(family),
        "leaking": commands.model(leaking),
    }
    os.environ["COMMAND_KEY"] = SECRET
    try:
        async with migrated(postgres) as url, running(url, models=models) as made:
            yield made
    finally:
        del os.environ["COMMAND_KEY"]


@pytest.fixture
def played(folder: Path) -> Path:
    """The folder of the model that plays what it is told to, emptied."""
    return emptied(folder / "played")


def emptied(folder: Path) -> Path:
    for old in folder.iterdir():
        old.unlink()
    return folder


def saying(value: Any) -> list[dict[str, Any]]:
    return [{"text": value if isinstance(value, str) else json.dumps(value)}, {"end": "stop"}]


def line(type: str, **members: Any) -> dict[str, Any]:
    return {"line": {"type": type, **members}}


async def test_what_it_says_in_several_messages_is_one_answer(service: Service, played: Path) -> None:
    commands.plays(
        played,
        [
            line("message"),
            {"text": "I "},
            {"text": "look."},
            line("tool_use", id="t1", name="ls", arguments={"path": "/"}),
            line("tool_result", id="t1", output=["a", "b"]),
            line("message"),
            line("message"),
            {"text": "Two files."},
            {"end": "stop"},
        ],
    )
    before = (await service.get("/v1/function-calls"))["data"]
    got = await hear(service, "played")
    assert got.run["result"] == got.text == "I look.\n\nTwo files."
    assert got.answer is not None
    assert got.answer["text"] == "I look.\n\nTwo files."
    told = [
        event for event in got.events if event["type"] in ("TOKEN", "TOOL_OBSERVED", "TOOL_OUTCOME_OBSERVED")
    ]
    assert [event["type"] for event in told] == [
        *["TOKEN"] * 2,
        "TOOL_OBSERVED",
        "TOOL_OUTCOME_OBSERVED",
        "TOKEN",
    ]
    use, outcome = told[2]["meta"], told[3]["meta"]
    assert use == {"toolCallId": "t1", "toolName": "ls", "arguments": {"path": "/"}}
    assert outcome == {"toolCallId": "t1", "output": ["a", "b"], "isError": False}
    # Nothing was run here, and nothing says so.
    assert not {"TOOL_REQUESTED", "TOOL_START", "TOOL_RESULT"} & set(got.types)
    assert (await service.get("/v1/function-calls"))["data"] == before
    assert {"ADAPTER_DETECTED", "COMPLETE"} <= set(got.types)
    adapter = next(event for event in got.events if event["type"] == "ADAPTER_DETECTED")
    assert adapter["meta"]["adapterId"] == "command"


async def test_tokens_are_seen_while_it_works(service: Service, played: Path) -> None:
    commands.plays(played, [{"text": "early"}, {"wait_ms": LONG_MS}])
    branch = await service.branch(chat_model="played")
    run = (await service.started(branch, lifecycle=PATIENT))["id"]
    async for frame in service.stream("GET", f"/v1/runs/{run}/events"):
        if frame.event == "TOKEN":
            assert frame.data["meta"]["text"] == "early"
            break
    await service.http.post(f"/v1/runs/{run}/cancel")
    await until(lambda: commands.all_gone(played))


async def test_it_is_told_the_conversation(service: Service, played: Path) -> None:
    commands.plays(played, saying("first"), saying("second"))
    branch = await service.branch(chat_model="played", system="Be brief.")
    await service.operate(branch, instruction="one", model_options={"effort": "low"})
    await service.operate(branch, instruction="two")
    first, second = commands.told(played, 0), commands.told(played, 1)
    assert (first["model"], first["options"]) == ("m", {"effort": "low"})
    said = [(message["role"], message["text"]) for message in second["messages"]]
    assert [role for role, _ in said] == ["system", "user", "assistant", "user"]
    assert (said[0][1], said[2][1]) == ("Be brief.", "first")
    assert "two" in said[3][1]


async def test_a_schema_is_asked_for_in_words_and_a_bad_answer_mended(service: Service, played: Path) -> None:
    commands.plays(played, saying({"n": "one"}), saying({"n": 1}))
    branch = await service.branch(chat_model="played", parse_model="played")
    run = await service.operate(branch, response_format=FORMAT)
    assert (run["result"], run["validation"]["ok"]) == ({"n": 1}, True)
    first, repair = commands.told(played, 0), commands.told(played, 1)
    assert '"n"' in first["messages"][-1]["text"]
    assert "/n" in repair["messages"][-1]["text"]
    assert "tools" not in first


async def test_calls_that_it_asks_for_are_the_services(service: Service, folder: Path) -> None:
    CALLS.clear()
    where = emptied(folder / "calling")
    call = {"index": 0, "id": "c1", "name": "note", "arguments": '{"text": "x"}'}
    commands.plays(where, [{"text": "noting"}, {"tool_call": call}, {"end": "tool_calls"}])
    got = await hear(service, "calling", actions=True, tools=["note"])
    assert [response["error"] for response in got.run["result"]["action_responses"]] == [None]
    assert CALLS == ["x"]
    assert {"TOOL_REQUESTED", "TOOL_START", "TOOL_RESULT"} <= set(got.types)
    assert [tool["name"] for tool in commands.told(where)["tools"]] == ["note"]


async def test_a_broken_answer_is_gone_on_with(service: Service, played: Path) -> None:
    commands.plays(played, [{"text": "One "}, {"text": "two "}], saying("three"))
    lifecycle = {
        "retry": {"attempts": 1, "base_delay_ms": 0},
        "continue_from_last_good_token": {"checkpoint_interval": 1},
    }
    got = await hear(service, "played", lifecycle=lifecycle)
    assert got.run["result"] == got.text == "One two three"
    unfinished, go_on = commands.told(played, 1)["messages"][-2:]
    assert (unfinished["role"], unfinished["text"]) == ("assistant", "One two ")
    assert "cut off" in go_on["text"]


async def test_another_model_takes_over(service: Service, played: Path, model_server: ModelServer) -> None:
    commands.plays(played, [{"complain": "no licence"}, {"exit": 3}])
    other = await served(service, model_server, [Attempt(chat_wire.text("from the wire"))])
    got = await hear(service, "played", lifecycle={"retry": None, "fallbacks": [other]})
    assert (got.run["result"], got.run["fallback_index"], got.run["model"]) == ("from the wire", 1, other)
    back = await hear(service, other, lifecycle={"retry": None, "fallbacks": ["played"]})
    assert back.run["result"] == "from the wire"


async def test_cancelling_ends_grandchildren_too(service: Service, folder: Path) -> None:
    pids = [folder / name for name in ("child", "grandchild")]
    branch = await service.branch(chat_model="family")
    run = (await service.started(branch, lifecycle=PATIENT))["id"]
    await until(lambda: all(path.exists() and path.read_text() for path in pids))
    ids = [int(path.read_text()) for path in pids]
    assert all(map(is_running, ids))
    await service.http.post(f"/v1/runs/{run}/cancel")
    assert (await service.ended(run))["status"] == "cancelled"
    await until(lambda: not any(map(is_running, ids)))


async def test_a_failure_tells_why_and_no_secret(service: Service) -> None:
    got = await hear(service, "leaking")
    assert (got.run["status"], got.code) == ("failed", "PROVIDER_ERROR")
    assert got.detail["provider_code"] == 4
    assert got.detail["stderr"] == "not authorized: [redacted]"
    models = await service.get("/v1/models")
    assert SECRET not in json.dumps([got.run, got.events, models])


async def test_it_takes_part_in_a_consensus(service: Service, played: Path) -> None:
    commands.plays(played, [{"text": "yes"}, line("message"), {"text": "indeed"}, {"end": "stop"}])
    other = await service.scripted("agrees", saying("yes\n\nindeed"))
    run = await service.consensus(["played", other], strategy="unanimous")
    assert (run["status"], run["result"]["status"]) == ("completed", "agreed"), run


async def test_it_can_be_used_by_its_name_alone(service: Service) -> None:
    listed = {model["name"]: model for model in (await service.get("/v1/models"))["data"]}
    assert (listed["played"]["provider"], listed["played"]["model"]) == ("command", "m")
    # What is run, and where, is nobody's business but the operator's.
    assert "command_player" not in json.dumps(listed)
    assert "COMMAND_KEY" not in json.dumps(listed)
    assert (await service.http.delete("/v1/models/played")).status_code == 409


@pytest.mark.parametrize(
    "more", [{}, {"options": {"argv": ["id"]}}, {"command": {"argv": ["id"], "cwd": "/"}}]
)
async def test_none_is_ever_registered_over_http(service: Service, more: dict[str, Any]) -> None:
    for name in ("mine", "played"):
        body = {"provider": "command", "model": "m", **more}
        for answer in (
            await service.http.put(f"/v1/models/{name}", json=body),
            await service.http.post("/v1/models", json={"name": name, **body}),
        ):
            assert answer.status_code in (400, 422), answer.text


async def test_a_middle_that_would_lose_messages_is_refused(service: Service, played: Path) -> None:
    commands.plays(played, saying("x"))
    for where in ("played", await service.scripted("plain", saying("x"))):
        branch = await service.branch(chat_model=where)
        fallbacks = [] if where == "played" else ["played"]
        body = {"instruction": "go", "middle": "communicate", "lifecycle": {"fallbacks": fallbacks}}
        answer = await service.http.post(f"/v1/branches/{branch}/operate", json=body)
        assert answer.status_code == 422, answer.text
        (error,) = answer.json()["errors"]
        assert (error["pointer"], "'played'" in error["message"]) == ("/middle", True)
        run = await service.operate(branch, stream_persist=True)
        assert run["result"] == "x"
    assert commands.runs(played) == 1


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_nothing_runs_on_without_the_service(database_url: str, tmp_path: Path, how: str) -> None:
    own = tmp_path / "own"
    own.mkdir()
    family = commands.model(commands.settings(*PYTHON, "-c", FAMILY, str(own)))
    async with serving(database_url, tmp_path, BRANCHLINE_MODELS=json.dumps({"family": family})) as process:
        branch = (await process.http.post("/v1/branches", json={"chat_model": "family"})).json()["id"]
        await process.started(branch, "operate", {"instruction": "go", "lifecycle": PATIENT})
        pids = [own / name for name in ("child", "grandchild")]
        await until(lambda: all(path.exists() and path.read_text() for path in pids), within_s=30)
        ids = [int(path.read_text()) for path in pids]
        assert all(map(is_running, ids))
        if how == "killed":
            process.process.kill()
        else:
            process.process.terminate()
        await process.process.wait()
    await until(lambda: not any(map(is_running, ids)), within_s=30)


async def test_a_run_is_read_like_any_other(service: Service, played: Path) -> None:
    """A refusal, reasoning and figures reach the run as those of a wire do."""
    commands.plays(
        played,
        [
            {"reasoning": "hm"},
            {"refusal": "no"},
            {"usage": {"input_tokens": 1, "output_tokens": 2}},
            {"end": "refusal"},
        ],
    )
    branch = await service.branch(chat_model="played")
    got = await heard(service, await service.operate(branch))
    assert got.code == "MODEL_REFUSAL"
    assert got.run["usage"]["output_tokens"] == 2
