"""Calls that clients carry out: the run holds nothing meanwhile, and goes on with what they bring."""

from __future__ import annotations

import pytest

from tests.support.acting import call
from tests.support.service import Service

pytestmark = pytest.mark.anyio


async def test_thin(service: Service) -> None:
    made = await service.http.put("/v1/tools/door", json={"kind": "client", "parameters": {"type": "object"}})
    assert made.status_code == 201, made.text
    branch = await service.branch(tools=True)
    answer = await service.http.post(
        f"/v1/branches/{branch}/act", json={"requests": [call("door", n=1), call("add", a=1, b=2)]}
    )
    assert answer.status_code == 202, answer.text
    run = answer.json()
    assert run["status"] == "waiting"
    (one,) = (await service.get(f"/v1/client-calls?run_id={run['id']}"))["data"]
    claimed = await service.http.post(f"/v1/function-calls/{one['id']}/claim")
    assert claimed.status_code == 200, claimed.text
    token = claimed.json()["lease_token"]
    brought = await service.http.post(
        f"/v1/function-calls/{one['id']}/result", json={"output": {"open": True}, "lease_token": token}
    )
    assert brought.status_code == 200, brought.text
    ended = await service.ended(run["id"])
    print(ended)
    print([e["type"] for e in await service.events(run["id"])])
    print(await service.get(f"/v1/function-calls?run_id={run['id']}"))
    assert ended["result"][0]["output"] == {"open": True}
