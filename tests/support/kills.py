"""Kill a service with runs in every phase, start it again, and see what became of them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from tests.support import chat_wire
from tests.support.invariants import assert_log
from tests.support.model_server import Attempt, ModelServer, Request
from tests.support.polling import until, until_true
from tests.support.process import Process, serving
from tests.support.service import frames, text_by_offset

Json = dict[str, Any]
FOREVER: Json = {"wait_ms": 600_000}
SILENCE = Attempt(head=b"", then="hang")
"""Takes a request and never answers."""
ENDS = ("RUN_COMPLETED", "RUN_FAILED", "RUN_CANCELLED")
NUMBER: Json = {"type": "object", "properties": {"n": {"type": "integer"}}}


def gives(body: bytes) -> Attempt:
    """An answer of a tool, or of a gate."""
    return Attempt([body], content_type="application/json", framing="length")


@dataclass(frozen=True)
class Phase:
    """A run, and where it stands when its process is killed."""

    name: str
    """Also that of the branch's model, and of the model of the scripts under "main"."""
    attempts: Sequence[Sequence[Json]] = ()
    """What the model says, by attempt."""
    lifecycle: Json = field(default_factory=dict)
    branch: Json = field(default_factory=dict)
    body: Json = field(default_factory=lambda: {"instruction": "go"})
    kind: str = "operate"
    tools: Mapping[str, Sequence[Attempt]] = field(default_factory=dict)
    """Answers of tools over HTTP, by name; one whose name begins with `safe` is idempotent."""
    gate: Sequence[Attempt] = ()
    """Answers of the branch's gate."""
    others: Mapping[str, Sequence[Sequence[Json]]] = field(default_factory=dict)
    """Further models."""
    until: str | tuple[str, int] = ""
    """The event after which it is killed; or whose n-th request, of a tool, `gate`, or a model."""
    last: Callable[[Process, str], Coroutine[Any, Any, None]] | None = None
    """What a client still does, before the kill."""
    finally_: str | tuple[str, int] = ""
    """What is waited for after that."""
    cancelled: bool = False
    """Whether its cancellation is stored, by another process, which this one does not live to hear of."""
    then: Callable[[Process, str], Coroutine[Any, Any, None]] | None = None
    """What a client does after the restart."""


@dataclass
class Outcome:
    """What became of it."""

    run: Json
    events: list[Json]
    """As they are stored."""
    seen: list[Json]
    """Before the kill, by a client that was attached."""
    resumed: list[Json]
    """After it, by that client."""
    messages: list[Json]
    calls: list[Json]
    attempts: list[Json]
    asked: Mapping[str, list[Request]]
    """The requests that each of its servers got."""

    @property
    def types(self) -> list[str]:
        """Of its events."""
        return [event["type"] for event in self.events]

    def of(self, kind: str) -> list[Json]:
        """Metas of the events of a type."""
        return [event["meta"] for event in self.events if event["type"] == kind]

    @property
    def after_recovery(self) -> list[str]:
        """The types of the events from RUN_RECOVERED on."""
        types = self.types
        return types[types.index("RUN_RECOVERED") :]

    @property
    def shape(self) -> list[str]:
        """Kinds of the branch's messages."""
        return [message["kind"] for message in self.messages]


def assert_one_history(outcome: Outcome) -> None:
    """What holds whenever a process was lost, whatever the run was at."""
    events = outcome.events
    assert_log(events)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert outcome.seen + outcome.resumed == events
    assert [kind for kind in outcome.types if kind in ENDS] == outcome.types[-1:]
    assert len({event["stream_id"] for event in events if event["type"] == "SESSION_START"}) == len(
        outcome.of("SESSION_START")
    )
    requests = [m["id"] for m in outcome.messages if m["kind"] == "action_request"]
    answered = [m["content"]["action_request_id"] for m in outcome.messages if m["kind"] == "action_response"]
    assert sorted(requests) == sorted(answered)
    assert len(outcome.attempts) == len(
        {(a["stream"], a["fallback_index"], a["attempt"]) for a in outcome.attempts}
    )
    if outcome.run["kind"] == "operate" and outcome.run["status"] == "completed":
        said = [m["content"]["text"] for m in outcome.messages if m["kind"] == "assistant_response"]
        assert said[-1] == text_by_offset(events)


class Stage:
    """A model server with everything that the runs talk to, and the runs before and after the kill."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        self.phases = phases
        self.server = ModelServer()
        self.runs: dict[str, str] = {}
        self.branches: dict[str, str] = {}
        self.seen: dict[str, list[Json]] = {phase.name: [] for phase in phases}

    async def play(self, database_url: str, tmp_path: Path, **second: str) -> dict[str, Outcome]:
        """Have all of them reach their phases, kill the process, start another, and wait for their ends."""
        async with self.server:
            # A lease that is long enough for all of them to be begun at once on a slow machine.
            async with serving(database_url, tmp_path, BRANCHLINE_LEASE_MS="5000") as process:
                await asyncio.gather(*(self._begin(process, phase) for phase in self.phases))
                watching = [asyncio.create_task(self._watch(process, phase.name)) for phase in self.phases]
                await asyncio.gather(*(self._reach(phase.name, phase.until) for phase in self.phases))
                for phase in self.phases:
                    if phase.last is not None:
                        await phase.last(process, self.runs[phase.name])
                    await self._reach(phase.name, phase.finally_)
                process.process.send_signal(signal.SIGSTOP)
                await self._cancel(database_url)
                process.process.kill()
                await process.process.wait()
                await asyncio.gather(*watching)
            async with serving(database_url, tmp_path, **second) as process:
                outcomes = await asyncio.gather(*(self._end(process, phase) for phase in self.phases))
        return {phase.name: outcome for phase, outcome in zip(self.phases, outcomes, strict=True)}

    async def _cancel(self, database_url: str) -> None:
        unwanted = [self.runs[phase.name] for phase in self.phases if phase.cancelled]
        connection = await asyncpg.connect(database_url)
        statement = "UPDATE runs SET cancel_requested_at = now(), ready_at = now() WHERE id = ANY($1::uuid[])"
        await connection.execute(statement, unwanted)
        await connection.close()

    def _url(self, name: str) -> str:
        """Of a tool or a gate: its name is where the server looks for its script."""
        return f"http://127.0.0.1:{self.server.port}/models/{name}:call"

    async def _begin(self, process: Process, phase: Phase) -> None:
        for name, attempts in {phase.name: phase.attempts, **phase.others}.items():
            self.server.scripts[name] = [chat_wire.attempt(steps) for steps in attempts]
            model = {"provider": "openai", "base_url": self.server.base_url, "model": name}
            lifecycle = {"timeout": None, **phase.lifecycle}
            await _put(process, f"/v1/models/{name}", model | {"lifecycle": lifecycle})
        for name, answers in phase.tools.items():
            self.server.scripts[name] = answers
            tool = {"kind": "http", "description": "A tool.", "parameters": NUMBER}
            tool |= {"http": {"url": self._url(name)}}
            await _put(process, f"/v1/tools/{name}", tool | {"idempotent": name.startswith("safe")})
        settings = {"chat_model": phase.name, "tools": list(phase.tools), **phase.branch}
        if phase.gate:
            self.server.scripts[f"gate-{phase.name}"] = phase.gate
            settings["gate"] = {"http": {"url": self._url(f"gate-{phase.name}"), "timeout_ms": 30_000}}
        made = await process.http.post("/v1/branches", json=settings)
        assert made.status_code == 201, made.text
        branch = self.branches[phase.name] = str(made.json()["id"])
        path = "/v1/consensus" if phase.kind == "consensus" else f"/v1/branches/{branch}/{phase.kind}"
        self.runs[phase.name] = await process.posted(path, phase.body)

    async def _watch(self, process: Process, name: str) -> None:
        """Be attached, until the process is gone."""
        url = f"/v1/runs/{self.runs[name]}/events"
        try:
            async with process.http.stream("GET", url, headers={"Accept": "text/event-stream"}) as answer:
                async for frame in frames(answer.aiter_lines()):
                    if frame.event != "stream.end":
                        self.seen[name].append(frame.data)
        except httpx.TransportError:
            pass

    async def _reach(self, phase: str, there: str | tuple[str, int]) -> None:
        match there:
            case (server, count):
                name = f"gate-{phase}" if server == "gate" else server
                await until(lambda: len(self._asked(name)) >= count, within_s=30)
            case kind:
                await until(lambda: not kind or kind in [e["type"] for e in self.seen[phase]], within_s=30)

    def _asked(self, name: str) -> list[Request]:
        return [request for request in self.server.requests if request.model == name]

    async def _end(self, process: Process, phase: Phase) -> Outcome:
        run_id, branch, seen = self.runs[phase.name], self.branches[phase.name], self.seen[phase.name]
        if phase.then is not None:
            await phase.then(process, run_id)
        resumed: list[Json] = []
        headers = {"Accept": "text/event-stream"}
        if seen:
            headers["Last-Event-ID"] = f"{run_id}:{seen[-1]['seq']}"
        async with process.http.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as answer:
            async for frame in frames(answer.aiter_lines()):
                if frame.event == "stream.end":
                    break
                resumed.append(frame.data)
        servers = [phase.name, *phase.others, *phase.tools, f"gate-{phase.name}"]
        return Outcome(
            await _get(process, f"/v1/runs/{run_id}"),
            (await _get(process, f"/v1/runs/{run_id}/events?limit=1000"))["data"],
            seen,
            resumed,
            (await _get(process, f"/v1/branches/{branch}/messages?order=asc"))["data"],
            (await _get(process, f"/v1/function-calls?run_id={run_id}&order=asc"))["data"],
            (await _get(process, f"/v1/runs/{run_id}/attempts"))["data"],
            {name: self._asked(name) for name in servers},
        )


async def waits(process: Process, run_id: str) -> None:
    """A client looks until the run has come to wait."""

    async def waiting() -> bool:
        return bool((await _get(process, f"/v1/runs/{run_id}"))["status"] == "waiting")

    await until_true(waiting)


async def approved(process: Process, run_id: str) -> None:
    """A person allows the call that a run waits for."""
    (asked,) = [a for a in (await _get(process, "/v1/approvals"))["data"] if a["run_id"] == run_id]
    path = f"/v1/function-calls/{asked['function_call_id']}/decision"
    answer = await process.http.post(path, json={"decision": "approve"})
    assert answer.status_code == 200, answer.text


async def _get(process: Process, path: str) -> Any:
    answer = await process.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _put(process: Process, path: str, body: Json) -> None:
    answer = await process.http.put(path, json=body)
    assert answer.status_code < 300, answer.text
