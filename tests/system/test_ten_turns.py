"""Ten turns on one branch whose calls end in every way; the eleventh prompt tells each end as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from app.adapters.ambient import SystemClock
from app.adapters.db.engine import driver_arguments
from app.adapters.db.run_store import PostgresRuns
from app.adapters.embedded.errors import LocalModelMissing
from app.adapters.embedded.model import find_weights
from app.core.operate.asking import ask_for
from app.core.operate.params import OperateParams
from app.core.operate.prompt import build_prompt
from tests.support.chat_wire import DONE, delta
from tests.support.chat_wire import text as said
from tests.support.model_server import Attempt, ModelServer
from tests.support.service import Service
from tests.system.test_first_job import start

pytestmark = pytest.mark.anyio

DENIED = "denied by governance gate"
GATE = {
    "rules": [
        {"when": "function == 'note' && arguments.text == 'secret'", "effect": "deny"},
        {"when": "function == 'later'", "effect": "escalate", "reason": "a person looks at it"},
    ]
}
PERMISSIONS = {"deny": {"echo": ["value=forbidden"]}}
MISFIT = 'INVALID_ARGUMENTS: (arguments): "b" is a required property'
RESULTS = "## Results of earlier tool calls\n"
_numbers = count()


@dataclass(frozen=True)
class Told:
    """One call and what a prompt has to say of it."""

    function: str
    arguments: Any
    output: Any = None
    error: str | None = None
    decision: Mapping[str, Any] | None = None
    """What a person says of it, where one is asked."""
    ran: Any = None
    """The arguments that it was made with, where a person changed them."""

    @property
    def request(self) -> dict[str, Any]:
        """As models and clients write it."""
        return {"function": self.function, "arguments": self.arguments}

    @property
    def shown(self) -> tuple[Any, str | None]:
        """Output and error, as a prompt has them."""
        if self.error is None:
            return self.output, None
        if self.error == DENIED:
            return {"error": DENIED, "function": self.function}, DENIED
        return {"error": self.error, **self.request}, self.error


def later(value: str, decision: Mapping[str, Any], **told: Any) -> Told:
    return Told("later", {"seconds": 0, "value": value}, decision=decision, **told)


TURNS: Sequence[Sequence[Told]] = (
    [Told("add", {"a": 2, "b": 3}, 5)],
    [Told("nothing", {})],
    [Told("refuse", {"why": "no stock"}, error="ValueError: no stock")],
    [Told("note", {"text": "secret"}, error=DENIED)],
    [
        Told(
            "echo",
            {"value": "forbidden"},
            error="PERMISSION_DENIED: calls of 'echo' with such arguments are denied",
        )
    ],
    [later("first", {"decision": "deny", "reason": "not today"}, error="APPROVAL_DENIED: not today")],
    [later("second", {"decision": "approve"}, output="second")],
    [
        later(
            "third",
            {"decision": "edit", "arguments": {"seconds": 0, "value": "changed"}},
            output="changed",
            ran={"seconds": 0, "value": "changed"},
        )
    ],
    [
        Told("add", {"a": 2}, error=MISFIT),
        Told("echo", {"value": False}, output=False),
        Told("echo", {"value": ""}, output=""),
        Told("nothing", {}),
    ],
    [Told("echo", {"value": {"list": [0, None, "ä"]}}, output={"list": [0, None, "ä"]})],
)


def natively(turn: Sequence[Told], number: int) -> Attempt:
    """The answer of a model that takes tools."""
    calls = [
        {
            "index": index,
            "id": f"call_{number}_{index}",
            "type": "function",
            "function": {"name": call.function, "arguments": json.dumps(call.arguments)},
        }
        for index, call in enumerate(turn)
    ]
    return Attempt([delta({"tool_calls": calls}), delta({}, "tool_calls"), DONE])


def in_words(turn: Sequence[Told], number: int) -> Attempt:
    """The answer of a model that was told of the tools in the prompt."""
    answer = {
        "value": f"turn {number}",
        "action_required": True,
        "action_requests": [call.request for call in turn],
    }
    return Attempt(said(json.dumps(answer)))


async def decided(http: httpx.AsyncClient, run: Mapping[str, Any], turn: Sequence[Told]) -> dict[str, Any]:
    """The run at its end, after a person has said what the turn has them say."""
    for call in turn:
        if call.decision is not None:
            assert run["status"] == "waiting"
            (asked,) = (await http.get(f"/v1/approvals?run_id={run['id']}")).json()["data"]
            path = f"/v1/function-calls/{asked['function_call_id']}/decision"
            assert (await http.post(path, json=call.decision)).status_code == 200
    async with http.stream(
        "GET", f"/v1/runs/{run['id']}/events", headers={"Accept": "text/event-stream"}
    ) as followed:
        await followed.aread()
    ended: dict[str, Any] = (await http.get(f"/v1/runs/{run['id']}")).json()
    assert ended["status"] == "completed", ended
    return ended


def shown_natively(messages: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Function, arguments and content of each call that a prompt retells."""
    results = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    assert len(calls) == len(results) == len({call["id"] for call in calls})
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]), results[call["id"]])
        for call in calls
    ]


def shown_in_words(texts: Sequence[str]) -> list[dict[str, Any]]:
    """The results that instructions tell."""
    found: list[dict[str, Any]] = []
    for text in texts:
        _, heading, rest = text.partition(RESULTS)
        if heading:
            found += json.loads(rest.partition("\n\n## ")[0])
    return found


def as_words(call: Told) -> dict[str, Any]:
    output, error = call.shown
    return {**call.request, "output": output, "error": error}


def as_content(call: Told) -> tuple[Any, ...]:
    output, _ = call.shown
    content = (
        output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, separators=(",", ":"))
    )
    return call.function, call.arguments, content


@pytest.mark.parametrize("native", [True, False], ids=["native tools", "tools in the prompt"])
async def test_the_eleventh_prompt_tells_how_each_call_ended(
    service: Service, model_server: ModelServer, native: bool
) -> None:
    name = f"ten-turns-{next(_numbers)}"
    written = natively if native else in_words
    model_server.scripts[name] = [
        *(written(turn, number) for number, turn in enumerate(TURNS)),
        Attempt(said('{"value": "all told", "action_required": false}' if not native else "all told")),
    ]
    options = {} if native else {"native_tools": False, "native_schema": False}
    await service.model(name, provider="openai", base_url=model_server.base_url, options=options)
    branch = await service.branch(chat_model=name, gate=GATE, permissions=PERMISSIONS)
    for number, turn in enumerate(TURNS):
        answer = await service.http.post(
            f"/v1/branches/{branch}/operate",
            json={"instruction": f"turn {number}", "actions": True, "lifecycle": {"retry": None}},
        )
        run = await decided(service.http, answer.json(), turn)
        given = run["result"]["action_responses"]
        assert [(each["output"], each["error"]) for each in given] == [call.shown for call in turn]
        await service.events(run["id"])
    last = await service.operate(branch, instruction="What came of it?", actions=True)
    assert last["status"] == "completed"

    messages = model_server.requests[-1].body["messages"]
    assert [request.model for request in model_server.requests].count(name) == len(TURNS) + 1
    calls = [call for turn in TURNS for call in turn]
    if native:
        assert shown_natively(messages) == [as_content(call) for call in calls]
        assert not any(RESULTS in (message["content"] or "") for message in messages)
    else:
        asked = [message["content"] for message in messages if message["role"] == "user"]
        assert len(asked) == len(TURNS) + 1
        assert shown_in_words(asked) == [as_words(call) for call in calls]
        assert {message["role"] for message in messages} <= {"system", "user", "assistant"}
    stored = await service.messages(branch)
    requests = [m["id"] for m in stored if m["kind"] == "action_request"]
    assert requests == [m["content"]["action_request_id"] for m in stored if m["kind"] == "action_response"]


@pytest.mark.slow
@pytest.mark.embedded
async def test_the_local_model_s_eleventh_prompt_does_too(tmp_path: Path, database_url: str) -> None:
    """So small a model cannot be relied on to ask for each tool: it answers, and act makes the calls."""
    try:
        find_weights()
    except LocalModelMissing as missing:
        pytest.skip(str(missing))
    process = await start(
        tmp_path, DATABASE_URL=database_url, BRANCHLINE_TOOL_MODULES="tests.support.further_tools"
    )
    try:
        assert process.stdout is not None
        url, output = "", ""
        async for line in process.stdout:
            output += line.decode()
            if b" on http://" in line:
                url = line.decode().partition(" on ")[2].split(",")[0].strip()
            if b"Ctrl-C" in line:
                break
        assert url, output
        async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
            project, branch = await _ten_turns(http)
    finally:
        process.kill()
        await process.wait()

    store = PostgresRuns(
        driver_arguments(database_url), owner=UUID(int=1), lease_ms=1_000, clock=SystemClock()
    )
    try:
        state = await store.branch_state(UUID(project), UUID(branch))
    finally:
        await store.close()
    params = OperateParams(instruction="What came of it?", chat_model="local")
    prompt = build_prompt(state.history, params, ask_for(params, (), takes_tools=False, takes_schema=True))
    asked = [message.text for message in prompt.messages if message.role == "user"]
    answered = [message.text for message in prompt.messages if message.role == "assistant"]
    assert (len(asked), len(answered)) == (len(TURNS) + 1, len(TURNS))
    assert all(answered)
    assert shown_in_words(asked) == [as_words(call) for turn in TURNS for call in turn]
    assert shown_in_words(asked[-1:]) == [as_words(call) for call in TURNS[-1]]


async def _ten_turns(http: httpx.AsyncClient) -> tuple[str, str]:
    """Project and branch of ten turns with the local model."""
    body = {"chat_model": "local", "gate": GATE, "permissions": PERMISSIONS}
    branch = (await http.post("/v1/branches", json=body)).json()
    path = f"/v1/branches/{branch['id']}"
    for number, turn in enumerate(TURNS):
        asked = {
            "instruction": f"Turn {number}: say hello.",
            "model_options": {"temperature": 0, "max_tokens": 8},
        }
        answer = await http.post(f"{path}/operate", json=asked, headers={"Prefer": "wait=55"})
        assert answer.json()["status"] == "completed", answer.text
        answer = await http.post(f"{path}/act", json={"requests": [call.request for call in turn]})
        run = await decided(http, answer.json(), turn)
        assert [(each["output"], each["error"]) for each in run["result"]] == [call.shown for call in turn]
    (project,) = (await http.get("/v1/projects")).json()["data"]
    return str(project["id"]), str(branch["id"])
