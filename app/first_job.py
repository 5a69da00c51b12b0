"""The first job: one operate with a tool, through Branchline's own HTTP API, shown as it happens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx

Say = Callable[[str], None]

INSTRUCTION = "Call the tool add once with a = 19 and b = 23."
"""As plain as the smallest of models needs it."""
TOOL = "add"
TIMEOUT_S = 120.0


class StepFailed(Exception):
    """A step of the job did not do what it should."""


class FirstJob:
    """Performs the job against a running service."""

    def __init__(self, base_url: str, model: str, say: Say, key: str | None = None) -> None:
        """`model` is the name of a registered model; `say` is given each line as it happens; `key` is an API
        key, for a service that asks for one.
        """
        self._model = model
        self._say = say
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._client = httpx.Client(base_url=base_url, timeout=TIMEOUT_S, trust_env=False, headers=headers)

    def perform(self) -> str:
        """All steps; returns the branch's id. Raises StepFailed, with what was wrong in words."""
        with self._client:
            try:
                return self._steps()
            except httpx.HTTPError as error:
                raise StepFailed(f"the service did not answer: {error}") from error

    def _steps(self) -> str:
        say = self._say
        branch = self._post(
            "/v1/branches",
            {"name": "first job", "chat_model": self._model, "tools": [TOOL]},
        )["id"]
        say(f"1. A branch                 {branch}")
        say(f"2. Operate, with a tool     {INSTRUCTION}")
        run, streamed = self._operate(branch)
        result = run["result"]
        say(f"   the run                  {run['id']} is {run['status']}, {run['last_seq']} events")
        if run["status"] != "completed":
            raise StepFailed(f"the run ended {run['status']}: {json.dumps(run['error'])}")
        responses = result.get("action_responses") if isinstance(result, dict) else None
        if not responses:
            raise StepFailed(f"the model asked for no tool: {json.dumps(result)}")
        say("3. The linked pair of messages")
        self._show_pair(branch)
        say("4. The function call, as it is stored")
        self._show_calls(run["id"])
        say("5. The stored history")
        stored = self._stored(run["id"])
        if stored != streamed:
            raise StepFailed("the stored events are not those that were streamed")
        say(f"   {len(stored)} events read back from Postgres, the same that were streamed, without a gap")
        return str(branch)

    def _operate(self, branch: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Post the request and show its events as they come: the run at its end, and the events."""
        body = {"instruction": INSTRUCTION, "actions": True, "model_options": {"temperature": 0}}
        events: list[dict[str, Any]] = []
        headers = {"Accept": "text/event-stream"}
        with self._client.stream(
            "POST", f"/v1/branches/{branch}/operate", json=body, headers=headers
        ) as answer:
            if answer.status_code != 200:
                answer.read()
                raise StepFailed(f"POST operate: {answer.status_code} {answer.text}")
            line = _Line(self._say)
            for event in _events(answer.iter_lines()):
                events.append(event)
                line.show(event)
            line.end()
        run_id = events[0]["run_id"]
        return self._get(f"/v1/runs/{run_id}"), events

    def _show_pair(self, branch: str) -> None:
        messages = self._get(f"/v1/branches/{branch}/messages?order=asc")["data"]
        by_id = {message["id"]: message for message in messages}
        pairs = 0
        for request in messages:
            if request["kind"] != "action_request":
                continue
            response = by_id.get(request["content"]["action_response_id"])
            if response is None or response["content"]["action_request_id"] != request["id"]:
                raise StepFailed(f"the request {request['id']} has no response that points back to it")
            asked, answered = request["content"], response["content"]
            arguments = json.dumps(asked["arguments"])
            self._say(f"   request   {request['id']}  {asked['function']}({arguments})")
            self._say(f"   response  {response['id']}  {json.dumps(answered['output'])}")
            pairs += 1
        if not pairs:
            raise StepFailed("the conversation holds no action request")

    def _show_calls(self, run_id: str) -> None:
        for call in self._get(f"/v1/function-calls?run_id={run_id}")["data"]:
            took_ms = call["execution"]["duration"] * 1000
            self._say(f"   {call['id']}  {call['function']}  {call['status']}  {took_ms:.1f} ms")

    def _stored(self, run_id: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        after = 0
        while True:
            page = self._get(f"/v1/runs/{run_id}/events?after={after}&limit=200")
            events += page["data"]
            if not page["has_more"]:
                return events
            after = events[-1]["seq"]

    def _post(self, path: str, body: Any) -> dict[str, Any]:
        return _checked(self._client.post(path, json=body))

    def _get(self, path: str) -> dict[str, Any]:
        return _checked(self._client.get(path))


def _checked(answer: httpx.Response) -> dict[str, Any]:
    if answer.status_code >= 300:
        raise StepFailed(
            f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text}"
        )
    body: dict[str, Any] = answer.json()
    return body


def _events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The events of a stream that is read line by line."""
    for line in lines:
        if line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            if "seq" in event:
                yield event


class _Line:
    """Shows events, one on a line, the tokens of an answer together on one."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._text = ""

    def show(self, event: dict[str, Any]) -> None:
        """Show an event, or keep a token for the line of its answer."""
        if event["type"] == "TOKEN":
            self._text += event["meta"]["text"]
            return
        self.end()
        meta = json.dumps(event["meta"])
        shown = meta if len(meta) <= 90 else meta[:87] + "..."
        self._say(f"   {event['seq']:>4}  {event['type']:<22} {'' if meta == '{}' else shown}")

    def end(self) -> None:
        """Show the tokens so far."""
        if self._text:
            self._say(f"         TOKEN …                {json.dumps(self._text)}")
            self._text = ""
