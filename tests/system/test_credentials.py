"""Credentials through the running service, and the commands that look after them."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.chat_wire import text
from tests.support.model_server import Attempt, ModelServer
from tests.support.process import ROOT
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

OLD, NEW = (f"{id}:{base64.b64encode(bytes([n]) * 32).decode()}" for n, id in enumerate(("old", "new")))


async def furnished(service: Service, url: str) -> str:
    """A branch whose model has its key from a credential."""
    answer = await service.http.put("/v1/credentials/key", json={"secret": "the first secret"})
    assert answer.status_code == 201, answer.text
    await service.model("m", provider="openai", base_url=url, credential="key")
    return await service.branch(chat_model="m")


async def command(*words: str, database_url: str, keys: str, folder: Path) -> tuple[int | None, str]:
    """What `branchline credentials …` ends with and says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "app.cli", "credentials", *words, "--data-dir", str(folder)),
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url, "BRANCHLINE_SEALING_KEYS": keys},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode() + err.decode()


async def test_a_key_is_replaced_between_two_runs(service: Service) -> None:
    async with ModelServer({"m": [Attempt(text("hello"))]}) as server:
        branch = await furnished(service, server.base_url)
        await service.operate(branch)
        await service.http.put("/v1/credentials/key", json={"secret": "the second secret"})
        run = await service.operate(branch)
    assert run["status"] == "completed"
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer the first secret", "Bearer the second secret"]


async def test_what_no_key_opens_fails_what_uses_it_and_is_told(
    database_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with ModelServer({"m": [Attempt(text("hello"))]}) as server:
        async with running(database_url, sealing_keys=(OLD,)) as service:
            branch = await furnished(service, server.base_url)
        async with running(database_url, sealing_keys=(NEW,)) as service:
            refused = await service.http.post(f"/v1/branches/{branch}/operate", json={"instruction": "go"})
            assert (refused.status_code, refused.json()["code"]) == (503, "credential_unreadable")
            assert "'old'" in refused.json()["detail"]
            talking = await service.branch(chat_model=await service.scripted("s", [{"end": "stop"}]))
            assert (await service.operate(talking))["error"]["code"] == "ZERO_OUTPUT"
            assert (await service.http.get("/readyz")).status_code == 200
        assert server.requests == []
    assert "stored secrets do not open" in "".join(capfd.readouterr())
    status, said = await command("check", database_url=database_url, keys=NEW, folder=tmp_path)
    assert (status, "Not to be opened: 1" in said) == (1, True)


async def test_a_run_that_was_queued_ends_with_the_code(database_url: str) -> None:
    async with ModelServer() as server, running(database_url) as service:
        branch = await furnished(service, server.base_url)
        endless = await service.scripted("endless", [{"wait_ms": 600_000}, {"end": "stop"}])
        first = await service.started(branch, chat_model=endless, lifecycle={"timeout": None})
        queued = await service.started(branch)
        assert queued["status"] == "queued"
        connection = await asyncpg.connect(database_url)
        await connection.execute("UPDATE credentials SET id = gen_random_uuid()")  # another row
        await connection.close()
        answer = await service.http.put("/v1/credentials/other", json={"secret": "all are read anew"})
        assert answer.status_code == 201
        await service.http.post(f"/v1/runs/{first['id']}/cancel")
        ended = await service.ended(queued["id"])
    assert server.requests == []
    assert (ended["status"], ended["error"]["code"]) == ("failed", "credential_unreadable")


async def test_keys_are_rotated_by_commands(database_url: str, tmp_path: Path) -> None:
    where: dict[str, Any] = {"database_url": database_url, "folder": tmp_path}
    async with ModelServer({"m": [Attempt(text("hello"))]}) as server:
        async with running(database_url, sealing_keys=(NEW, OLD)) as service:
            branch = await furnished(service, server.base_url)
            status, said = await command("rotate", keys=f"{OLD},{NEW}", **where)
            assert (status, "Sealed anew: 1." in said) == (0, True)
            assert (await service.operate(branch))["status"] == "completed"
        status, said = await command("rotate", keys=f"{OLD},{NEW}", **where)
        assert (status, "Sealed anew: 0." in said) == (0, True)
        status, said = await command("check", keys=OLD, **where)
        assert (status, "first sealing key: 1." in said) == (0, True)
        async with running(database_url, sealing_keys=(OLD,)) as service:
            assert (await service.operate(branch))["status"] == "completed"
    status, said = await command("rotate", keys="", **where)
    assert (status, "BRANCHLINE_SEALING_KEYS" in said, "Traceback" in said) == (2, True, False)
