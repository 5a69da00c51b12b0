"""Nothing that a client names leads the service to a private address: not by name, redirect or spelling."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from app.adapters.checked_network import from_system
from tests.support import cases, chat_wire
from tests.support.acting import call, rows_of
from tests.support.database import migrated
from tests.support.model_server import Attempt, ModelServer
from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

CASES = cases.load("6-http-tools-mcp")
KEY = "the operator's key of the tests"
ALLOWED = "public.test"
"""The one name that the operator has listed."""
INNER = "inner.test"
"""A name in public that means this machine."""


async def this_machine(host: str, port: int) -> list[str]:
    """The resolver of the tests: addresses are themselves, and every name is this machine."""
    return [host if ":" in host or host[0].isdigit() else "127.0.0.1"]


@asynccontextmanager
async def strict(database_url: str, **settings: Any) -> AsyncIterator[Service]:
    """The service as it faces others: private addresses are reached by the listed name alone."""
    chosen = {"bootstrap_key": KEY, "allowed_hosts": (ALLOWED,), "resolve": this_machine, **settings}
    async with running(database_url, **chosen) as service:
        service.http.headers["Authorization"] = f"Bearer {KEY}"
        yield service


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    """See `strict`."""
    async with migrated(postgres) as url, strict(url, webhook_pauses_s=()) as made:
        yield made


@pytest.fixture
async def listener() -> AsyncIterator[ModelServer]:
    """What must not be reached."""
    async with ModelServer() as made:
        yield made


async def register(service: Service, name: str, url: str, **more: Any) -> Any:
    body = {"kind": "http", "parameters": {"type": "object"}, "http": {"url": url}, **more}
    return await service.http.put(f"/v1/tools/{name}", json=body)


async def error_of(service: Service, tool: str) -> str:
    """How a call of the tool fails."""
    run = await service.act(await service.branch(), call(tool))
    assert run["status"] == "completed"
    return str(run["result"][0]["error"])


async def tool(service: Service, url: str) -> str | None:
    assert (await register(service, "t", url)).status_code < 300
    run = await service.act(await service.branch(), call("t"))
    error = run["result"][0]["error"]
    assert error is None or error.startswith("BLOCKED_ADDRESS: ")
    return None if error is None else str(error)


async def gate(service: Service, url: str) -> str | None:
    branch = await service.branch(gate={"http": {"url": url}})
    run = await service.act(branch, call("add", a=1, b=2))
    (row,) = await rows_of(service, run["id"])
    return None if row["gate"]["effect"] == "allow" else str(row["gate"]["reason"])


async def hook(service: Service, url: str) -> str | None:
    branch = await service.branch(hooks=[{"point": "TOOL_PRE", "http": {"url": url}}])
    run = await service.act(branch, call("add", a=1, b=2))
    error = run["result"][0]["error"]
    return None if error is None else str(error)


async def webhook(service: Service, url: str) -> str | None:
    body = {"url": url, "event_types": ["RUN_COMPLETED"]}
    answer = await service.http.post("/v1/webhook-endpoints", json=body)
    assert answer.status_code == 201, answer.text
    path = f"/v1/webhook-endpoints/{answer.json()['id']}"
    await service.act(await service.branch(), call("add", a=1, b=2))
    async with asyncio.timeout(30):
        while True:
            (found,) = (await service.get(f"{path}/deliveries"))["data"]
            if found["status"] in ("done", "dead"):
                break
            await asyncio.sleep(0.01)
    assert (await service.http.delete(path)).status_code == 204
    return None if found["status"] == "done" else str(found["last_error"])


async def model(service: Service, url: str) -> str | None:
    await service.model("m", provider="openai", base_url=url)
    branch = await service.branch(chat_model="m")
    run = await service.operate(branch, lifecycle={"retry": None})
    return None if run["status"] == "completed" else str(run["error"])


Way = Callable[[Service, str], Awaitable[str | None]]
"""Makes the service send something to a URL, and gives what it says against it."""

ANSWERS: Mapping[str, tuple[Way, Attempt]] = {
    "tool": (tool, Attempt([b"{}"], framing="length")),
    "gate": (gate, Attempt([b'{"effect": "allow"}'], framing="length")),
    "hook": (hook, Attempt(status=204)),
    "webhook": (webhook, Attempt(status=204)),
    "model": (model, Attempt(chat_wire.text("hello"))),
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_what_a_name_means_decides_for_every_kind_of_address(
    service: Service, listener: ModelServer, kind: str
) -> None:
    way, answer = ANSWERS[kind]
    listener.scripts.update({"": [answer], "m": [answer]})
    refused = await way(service, f"http://{INNER}:{listener.port}/v1")
    assert "may not be reached" in (refused or ""), refused
    assert listener.connections == 0
    assert await way(service, f"http://{ALLOWED}:{listener.port}/v1") is None
    assert listener.requests[0].headers["host"] == f"{ALLOWED}:{listener.port}"


@pytest.mark.parametrize("kind", ANSWERS)
async def test_h01_a_redirect_leads_nowhere(service: Service, listener: ModelServer, kind: str) -> None:
    given = CASES["H01"]["input"]
    targets = [given["server"][0]["headers"]["Location"], *given["variants_location"]]
    both = itertools.product if kind == "tool" else zip
    async with ModelServer() as public:
        for n, (status, target) in enumerate(both(given["variants_status"], targets), start=1):
            there = {"Location": target.replace("LISTENER", str(listener.port))}
            moved = Attempt([b'{"error": "of the inside"}'], status, framing="length", headers=there)
            public.scripts.update({"": [moved], "m": [moved]})
            said = await ANSWERS[kind][0](service, f"http://{ALLOWED}:{public.port}/hook")
            assert said
            assert kind == "model" or "of the inside" not in said
            assert len(public.requests) == n
    assert listener.connections == 0


async def test_h03_an_answer_that_was_checked_is_the_one_that_is_dialled(database_url: str) -> None:
    ((name, script),) = CASES["H03"]["input"]["dns"].items()
    answers = [said.rpartition(" ")[2] for said in script]
    asked: Counter[str] = Counter()

    async def rebinding(host: str, port: int) -> list[str]:
        asked[host] += 1
        return [answers[min(asked[host], len(answers)) - 1]]

    async with ModelServer() as listener, strict(database_url, resolve=rebinding) as service:
        await register(service, "rebound", f"http://{name}:{listener.port}/")
        for _ in range(2):
            assert (await error_of(service, "rebound")).startswith("BLOCKED_ADDRESS: ")
        assert (asked[name], listener.connections) == (2, 0)


async def test_h03_a_name_that_means_something_else_by_now_leads_nowhere_else(database_url: str) -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2", "::1"]

    async with (
        ModelServer({"": [Attempt([b"1"])]}) as server,
        strict(database_url, allowed_hosts=("127.0.0.1/32",), resolve=rebinding) as service,
    ):
        await register(service, "rebound", f"http://rebind.test:{server.port}/")
        run = await service.act(await service.branch(), call("rebound"))
        assert (run["result"][0]["output"], asked) == (1, ["rebind.test"])
        assert server.requests[0].headers["host"] == f"rebind.test:{server.port}"
        # The second connection is asked about anew, all of its addresses.
        assert (await error_of(service, "rebound")).startswith("BLOCKED_ADDRESS: ")
        assert (len(asked), server.connections) == (2, 1)


async def test_h03_every_answer_is_checked(database_url: str) -> None:
    inner, allowed = "127.0.0.2", "127.0.0.1"
    reached: list[bool] = []

    async def mixed(host: str, port: int) -> list[str]:
        return [inner] if host == "inner.test" else [inner, allowed]

    async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(True)
        writer.close()

    async with (
        ModelServer({"": [Attempt([b"1"])]}) as server,
        AsyncExitStack() as stack,
        strict(database_url, allowed_hosts=(f"{allowed}/32",), resolve=mixed) as service,
    ):
        with suppress(OSError):  # not on every system is it an address of this machine
            await stack.enter_async_context(await asyncio.start_server(listens, inner, server.port))
        await register(service, "mixed", f"http://mixed.test:{server.port}/")
        await register(service, "inner", f"http://inner.test:{server.port}/")
        run = await service.act(await service.branch(), call("mixed"))
        assert (run["result"][0]["output"], server.connections) == (1, 1)
        assert (await error_of(service, "inner")).startswith("BLOCKED_ADDRESS: ")
        assert not reached


async def test_h04_no_spelling_of_an_inner_address_is_taken_or_reached(database_url: str) -> None:
    urls = CASES["H04"]["input"]["tool_urls"]
    async with ModelServer() as listener:
        here = [url[:-1] + f":{listener.port}/" for url in urls]
        # Registered while the operator allowed them all.
        everything = ("0.0.0.0/0", "::/0", "localhost", "2130706433", "0177.0.0.1", "127.1")
        async with strict(database_url, allowed_hosts=everything) as service:
            for n, url in enumerate(here):
                made = await register(service, f"t{n}", url)
                assert made.status_code == (422 if "user@" in url else 201), made.text
        async with strict(database_url, allowed_hosts=(), resolve=from_system) as service:
            for n, url in enumerate(here):
                refused = await register(service, "new", url)
                assert refused.status_code == 422
                assert refused.json()["errors"][0]["code"] == "address_not_allowed"
                if "user@" not in url:
                    assert (await error_of(service, f"t{n}")).startswith("BLOCKED_ADDRESS: "), url
        assert listener.connections == 0


async def test_images_are_not_asked_for_at_inner_addresses_by_others_either(service: Service) -> None:
    sees = await service.scripted("sees", [{"text": "a cat"}, {"end": "stop"}])
    branch = await service.branch(chat_model=sees)
    images = ["https://pictures.example/a.png", "data:image/png;base64,AAAA"]
    run = await service.operate(branch, images=images)
    assert run["status"] == "completed"
    bad = ["http://169.254.169.254/latest/meta-data/", "http://localhost/a.png", "data:text/html,x"]
    said = {"instruction": "look", "images": [*images, *bad]}
    answers = [
        (await service.http.post(f"/v1/branches/{branch}/operate", json=said), ""),
        (
            await service.http.post(
                f"/v1/branches/{branch}/messages",
                json={"messages": [{"kind": "instruction", "content": said}]},
            ),
            "/messages/0/content",
        ),
    ]
    for answer, at in answers:
        assert answer.status_code == 422
        assert [e["pointer"] for e in answer.json()["errors"]] == [f"{at}/images/{n}" for n in (2, 3, 4)]


async def test_a_model_of_the_operators_is_reached_wherever_it_is(database_url: str) -> None:
    async with ModelServer({"wire": [Attempt(chat_wire.text("hello"))]}) as server:
        models = {"ours": {"provider": "openai", "model": "wire", "base_url": server.base_url}}
        async with strict(database_url, models=models) as service:
            run = await service.operate(await service.branch(chat_model="ours"))
            assert (run["status"], run["result"]) == ("completed", "hello")
            # It is the operator's word that counts, and not the address.
            answer = await service.http.put(
                "/v1/models/mine", json={"provider": "openai", "model": "wire", "base_url": server.base_url}
            )
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["code"] == "address_not_allowed"
        await until(lambda: len(server.requests) == 1)


async def test_proxies_of_the_environment_are_not_used(
    database_url: str, listener: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, f"http://127.0.0.1:{listener.port}")
    async with ModelServer() as server, strict(database_url, webhook_pauses_s=()) as service:
        for way, answer in ANSWERS.values():
            server.scripts.update({"": [answer], "m": [answer]})
            assert await way(service, f"http://{ALLOWED}:{server.port}/v1") is None
    assert listener.connections == 0
