"""Changes of a branch while runs work on it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.service import Service

pytestmark = pytest.mark.anyio

HELLO: list[dict[str, Any]] = [{"text": "Hello"}, {"end": "stop"}]
SAID = {"messages": [{"kind": "instruction", "content": {"instruction": "by hand"}}]}


async def test_settings_may_change_while_runs_work_and_nothing_said_is_lost(service: Service) -> None:
    branch = await service.branch(chat_model=await service.scripted("changes", HELLO), system="one")
    url = f"/v1/branches/{branch}"

    async def append() -> int:
        status = (await service.http.post(f"{url}/messages", json=SAID)).status_code
        assert status in (201, 409)
        return int(status == 201)

    async def change(number: int) -> int:
        body = {"system": f"text {number}" if number % 3 else None, "metadata": {f"k{number}": number}}
        answer = await service.http.patch(url, json=body)
        assert answer.status_code == 200, answer.text
        return 0

    async def operate() -> int:
        run = await service.operate(branch)
        assert run["status"] == "completed", run
        return 2

    work = [step for n in range(12) for step in (operate(), append(), change(n))]
    said = sum(await asyncio.gather(*work))
    await service.http.patch(url, json={"system": "last"})
    now = await service.get(url)
    assert now["metadata"] == {f"k{n}": n for n in range(12)}
    messages = await service.messages(branch)
    assert [m["content"] for m in messages if m["kind"] == "system"] == [{"text": "last"}]
    assert messages[0]["kind"] == "system"
    assert len(messages) == said + 1
    kinds = [m["kind"] for m in messages[1:] if m["run_id"] is not None]
    assert kinds == ["instruction", "assistant_response"] * 12


async def test_a_deleted_branch_takes_a_run_of_its_own_away_or_stays(service: Service) -> None:
    model = await service.scripted("deletes", HELLO)
    for _ in range(10):
        branch = await service.branch(chat_model=model)
        ran, gone = await asyncio.gather(
            service.http.post(f"/v1/branches/{branch}/operate", json={"instruction": "go"}),
            service.http.delete(f"/v1/branches/{branch}"),
        )
        left = (await service.http.get(f"/v1/branches/{branch}")).status_code
        if gone.status_code == 204:
            assert (left, ran.status_code) in ((404, 404), (404, 200))
        else:
            assert (gone.status_code, left, ran.status_code) == (409, 200, 200)
