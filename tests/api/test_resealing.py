"""Sealing everything anew under a new key, beside a service that goes on working."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from app.adapters.db.engine import database_url
from app.adapters.db.resealing import BATCH, Found, inspect, reseal
from app.adapters.db.session import Database
from app.adapters.sealing import AesGcmVault
from app.core.sealing import stored_under
from app.sealing_wiring import keep_sealed
from tests.support.api import SEALING_KEYS, Api, serving

pytestmark = pytest.mark.anyio

OLD = AesGcmVault(SEALING_KEYS)
BOTH = AesGcmVault({"second": bytes(32), **SEALING_KEYS})
NEW = AesGcmVault({"second": bytes(32)})
SECRET = "a secret that is rotated"
WHSEC = "whsec_" + "QUJD" * 12

TOOL: dict[str, Any] = {
    "kind": "http",
    "parameters": {"type": "object"},
    "http": {"url": "https://t.example", "headers": {"X": SECRET, "Y": "env:MODEL_KEY", "Z": SECRET}},
}
SERVER: dict[str, Any] = {"url": "https://mcp.example", "headers": {"X": SECRET, "Y": "env:MODEL_KEY"}}
MODEL: dict[str, Any] = {
    "provider": "openai",
    "model": "m",
    "options": {"headers": {"X": SECRET}, "seed": 12345678901234567890123},
}


async def furnished(api: Api) -> None:
    """One secret in each place, and two in the tool: six in all."""
    for path, body in (
        ("credentials/c", {"secret": SECRET}),
        ("tools/t", TOOL),
        ("mcp-servers/s", SERVER),
        ("models/m", MODEL),
        ("models/bare", {"provider": "openai", "model": "m"}),
    ):
        assert (await api.client.put(f"/v1/{path}", json=body)).status_code == 201
    answer = await api.client.post("/v1/webhook-endpoints", json={"url": "https://hooks.example"})
    assert answer.status_code == 201


async def stored(api: Api) -> list[str]:
    """Every secret as it is stored."""
    rows = await api.rows(
        "SELECT secret AS s FROM credentials UNION ALL SELECT secret FROM webhook_endpoints "
        "UNION ALL SELECT previous_secret FROM webhook_endpoints WHERE previous_secret IS NOT NULL "
        "UNION ALL SELECT value FROM tools, json_each_text(settings->'headers') WHERE value NOT LIKE 'env:%' "
        "UNION ALL SELECT value FROM mcp_servers, json_each_text(settings->'headers') "
        "WHERE value NOT LIKE 'env:%' "
        "UNION ALL SELECT value FROM models, json_each_text(options->'headers')"
    )
    return [row["s"] for row in rows]


async def test_everything_is_sealed_anew_once_and_the_old_key_may_go(
    api: Api, empty_database_url: str
) -> None:
    await furnished(api)
    assert all(text.startswith(stored_under("first")) for text in await stored(api))
    assert await inspect(api.database, BOTH) == Found(stale=6)
    assert await reseal(api.database, BOTH) == Found(sealed=6)
    assert all(text.startswith(stored_under("second")) for text in await stored(api))
    before = await stored(api)
    assert await reseal(api.database, BOTH) == Found()
    assert await stored(api) == before
    assert await inspect(api.database, NEW) == Found(fine=6)
    assert await inspect(api.database, NEW, only_stale=True) == Found()
    async with serving(empty_database_url, vault=NEW) as later:
        assert await later.services.credentials.secret(api.home, "c") == SECRET
        headers = (await later.services.tools.tools(api.home))["t"].settings["headers"]
        assert headers == TOOL["http"]["headers"]
        _, (server,) = await later.services.mcp_servers.with_tools(api.home)
        assert dict(server.server.headers) == SERVER["headers"]
        model = await later.services.models.resolve(api.home, "m")
        assert model.endpoint.options == MODEL["options"]
        seen = (await later.client.get("/v1/credentials/c")).json()
        assert seen["key_id"] == "second"
        assert seen["rotated_at"] > seen["updated_at"]


async def test_what_no_key_opens_is_counted_and_left(api: Api) -> None:
    await furnished(api)
    before = await stored(api)
    assert await reseal(api.database, NEW) == Found(unreadable=6)
    assert await inspect(api.database, NEW) == Found(unreadable=6)
    assert await inspect(api.database, NEW, only_stale=True) == Found(unreadable=6)
    assert await inspect(api.database, AesGcmVault({}), only_stale=True) == Found(unreadable=6)
    assert await stored(api) == before


async def test_more_than_a_batch_of_what_was_stored_as_it_is(api: Api) -> None:
    await furnished(api)
    many = BATCH + 7
    await api.rows(
        "INSERT INTO webhook_endpoints (id, project_id, url, secret, previous_secret) "
        "SELECT gen_random_uuid(), :project, 'https://hooks.example', :secret, :secret "
        f"FROM generate_series(1, {many})",
        project=api.home,
        secret=WHSEC,
    )
    assert await inspect(api.database, BOTH) == Found(stale=2 * many + 6)
    assert await reseal(api.database, BOTH, only_plain=True) == Found(sealed=2 * many)
    assert WHSEC not in str(await stored(api))
    assert await reseal(api.database, BOTH) == Found(sealed=6)
    assert await inspect(api.database, NEW) == Found(fine=2 * many + 6)


async def test_a_service_writes_meanwhile_and_nothing_is_lost(api: Api) -> None:
    names = [f"c{n}" for n in range(20)]

    async def write() -> None:
        for turn in range(5):
            for name in names:
                body = {"secret": f"{name} after {turn} turns"}
                assert (await api.client.put(f"/v1/credentials/{name}", json=body)).status_code < 300

    async def rotate() -> None:
        for vault in (BOTH, OLD, BOTH, OLD, BOTH):
            keys = vault if vault is BOTH else AesGcmVault({**SEALING_KEYS, "second": bytes(32)})
            await reseal(api.database, keys)

    await asyncio.gather(write(), rotate(), rotate())
    await reseal(api.database, BOTH)
    assert await inspect(api.database, NEW) == Found(fine=len(names))
    for row in await api.rows("SELECT id, name, secret FROM credentials"):
        assert row["secret"].startswith(stored_under("second"))


async def test_some_time_after_a_start_what_was_stored_as_it_is_gets_sealed(api: Api) -> None:
    await furnished(api)
    await api.rows("UPDATE webhook_endpoints SET secret = :secret", secret=WHSEC)
    await keep_sealed(api.database, AesGcmVault({}), plain_after_s=0)
    assert WHSEC in await stored(api)
    await keep_sealed(api.database, BOTH, plain_after_s=0)
    assert await inspect(api.database, OLD) == Found(fine=5, unreadable=1)
    assert await inspect(api.database, BOTH) == Found(fine=1, stale=5)


async def test_a_database_that_is_away_is_waited_for(api: Api, empty_database_url: str) -> None:
    await furnished(api)
    await api.rows("UPDATE webhook_endpoints SET secret = :secret", secret=WHSEC)
    engine = create_async_engine(
        database_url(empty_database_url), pool_size=1, max_overflow=0, pool_timeout=0.01
    )
    try:
        async with engine.connect():  # the only connection there is
            keeping = asyncio.create_task(keep_sealed(Database(engine), OLD, plain_after_s=0, away_s=0.01))
            done, _ = await asyncio.wait({keeping}, timeout=0.3)
            assert not done
        await keeping
    finally:
        await engine.dispose()
    assert await inspect(api.database, OLD) == Found(fine=6)
