"""Read back what a run of act has left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.service import Service


def call(function: str, /, **arguments: Any) -> dict[str, Any]:
    """A request for one call."""
    return {"function": function, "arguments": arguments}


async def refused(service: Service, branch: str, status: int, **body: Any) -> dict[str, Any]:
    """The problem that act answers with."""
    answer = await service.http.post(f"/v1/branches/{branch}/act", json=body)
    assert answer.status_code == status, answer.text
    problem: dict[str, Any] = answer.json()
    return problem


async def begun(service: Service, branch: str, **body: Any) -> dict[str, Any]:
    """Act without waiting; the run."""
    answer = await service.http.post(
        f"/v1/branches/{branch}/act", json=body, headers={"Prefer": "respond-async"}
    )
    assert answer.status_code == 202, answer.text
    run: dict[str, Any] = answer.json()
    return run


async def rows_of(service: Service, run_id: str) -> list[dict[str, Any]]:
    """The function calls of a run, by index and attempt."""
    rows = (await service.get(f"/v1/function-calls?run_id={run_id}&limit=1000"))["data"]
    return sorted(rows, key=lambda row: (row["index"], row["attempt"]))


async def pairs_of(service: Service, branch: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The contents of each request message and of the response that it is linked with, both ways."""
    messages = await service.messages(branch)
    by_id = {message["id"]: message for message in messages}
    pairs = []
    for asked in messages:
        if asked["kind"] == "action_request":
            answered = by_id[asked["content"]["action_response_id"]]
            assert answered["kind"] == "action_response"
            assert answered["content"]["action_request_id"] == asked["id"]
            pairs.append((asked["content"], answered["content"]))
    assert len(messages) == 2 * len(pairs), "nothing else is said, and nothing twice"
    return pairs


async def types_of(service: Service, run_id: str) -> list[str]:
    """The types of what happened to the calls of a run, in order."""
    return [e["type"] for e in await service.events(run_id) if e["type"].startswith("TOOL_")]


def outputs(run: Mapping[str, Any]) -> list[Any]:
    """What the calls gave, in order."""
    return [result["output"] for result in run["result"]]
