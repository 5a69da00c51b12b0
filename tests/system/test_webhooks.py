"""Webhook deliveries over HTTP: complete, in order, signed, tried again; and runs that never notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.database import migrated
from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.support.receiver import Received, Receiver, Reply
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

FLAKY: list[list[dict[str, Any]]] = [
    [{"text": "Half an ans"}, {"error": {"kind": "network"}}],
    [{"text": "A whole "}, {"text": "answer."}, {"end": "stop"}],
]
AT_ONCE = {"retry": {"base_delay_ms": 0, "max_delay_ms": 0}}
SAYING = [{"text": "hello"}, {"end": "stop"}]


@pytest.fixture(scope="module")
async def service(postgres: PostgresServer) -> AsyncIterator[Service]:
    settings: dict[str, Any] = {"webhook_pauses_s": (0.01, 0.02), "webhook_timeout_s": 5}
    async with migrated(postgres) as url, running(url, **settings) as made:
        yield made


@pytest.fixture
async def receiver(service: Service) -> AsyncIterator[Receiver]:
    """A receiver of the test's own; afterwards nobody posts there any more."""
    async with Receiver() as made:
        yield made
        for endpoint in (await service.get("/v1/webhook-endpoints"))["data"]:
            await service.http.delete(f"/v1/webhook-endpoints/{endpoint['id']}")


async def endpoint(service: Service, url: str, **more: Any) -> dict[str, Any]:
    """Make an endpoint, and wait until every process has heard of it."""
    answer = await service.http.post("/v1/webhook-endpoints", json={"url": url, **more})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def delivery(service: Service, endpoint: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """How an endpoint stands with a run."""
    page = await service.get(f"/v1/webhook-endpoints/{endpoint['id']}/deliveries")
    (found,) = [one for one in page["data"] if one["run_id"] == run["id"]]
    assert isinstance(found, dict)
    return found


async def settled(
    service: Service, endpoint: dict[str, Any], run: dict[str, Any], status: str = "done"
) -> dict[str, Any]:
    """The delivery when it has got a status."""
    async with asyncio.timeout(30):
        while True:
            found = await delivery(service, endpoint, run)
            if found["status"] == status:
                return found
            await asyncio.sleep(0.01)


def fired(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stored callbacks of a log, as they are told of one by one."""
    outer = ("seq", "ts", "run_id", "branch_id", "stream_id", "attempt", "fallback_index", "context")
    return [
        {**{name: event[name] for name in outer}, **callback}
        for event in events
        for callback in event["callbacks"]
    ]


async def test_every_callback_of_a_run_comes_once_signed_and_in_order(
    service: Service, receiver: Receiver
) -> None:
    made = await endpoint(service, receiver.url("/all"))
    branch = await service.branch(chat_model=await service.scripted("flaky", *FLAKY))
    run = await service.operate(branch, lifecycle={**AT_ONCE, "context": {"order": "4711"}})
    assert run["status"] == "completed"
    end = await settled(service, made, run)
    events = await service.events(run["id"])
    assert receiver.callbacks("/all") == fired(events)
    assert [c["name"] for c in fired(events)] == [
        *("on_start", "on_error", "on_retry", "on_start", "on_complete")
    ]
    posts = receiver.at("/all")
    for post in posts:
        post.verify(made["secret"])
        assert post.headers["content-type"] == "application/json"
    assert len({post.id for post in posts}) == len(posts) == end["posts"]
    seqs = [post.data["last_seq"] for post in posts]
    assert seqs == sorted(set(seqs))
    assert [post.data["ended"] for post in posts] == [*[False] * (len(posts) - 1), True]
    assert (end["delivered_seq"], end["last_status"], end["failures"]) == (run["last_seq"], 200, 0)
    assert end["ended_at"] is not None


async def test_a_post_that_fails_is_tried_again_as_it_was(service: Service, receiver: Receiver) -> None:
    receiver.replies["/flaky"] = [Reply(500), Reply(503, {"Retry-After": "0"}), Reply(204)]
    made = await endpoint(service, receiver.url("/flaky"))
    branch = await service.branch(chat_model=await service.scripted("hello", SAYING))
    run = await service.operate(branch)
    end = await settled(service, made, run)
    first, second, third, *_ = receiver.at("/flaky")
    assert first.id == second.id == third.id
    assert first.body == second.body == third.body
    for post in receiver.at("/flaky"):
        post.verify(made["secret"])
    assert receiver.callbacks("/flaky") == fired(await service.events(run["id"]))
    assert end["posts"] == len({post.id for post in receiver.at("/flaky")})


async def test_what_fails_too_often_is_given_up_until_it_is_redriven(
    service: Service, receiver: Receiver
) -> None:
    receiver.replies["/down"] = [*[Reply(500)] * 3, Reply(200)]
    made = await endpoint(service, receiver.url("/down"))
    branch = await service.branch(chat_model=await service.scripted("hello", SAYING))
    run = await service.operate(branch)
    dead = await settled(service, made, run, "dead")
    assert (dead["failures"], dead["last_status"], dead["last_error"]) == (3, 500, "HTTP 500")
    assert len(receiver.at("/down")) == 3
    shown = await service.get(f"/v1/webhook-endpoints/{made['id']}/deliveries?status=dead")
    assert [one["run_id"] for one in shown["data"]] == [run["id"]]
    redrive = f"/v1/webhook-endpoints/{made['id']}/deliveries/{run['id']}/redrive"
    answer = await service.http.post(redrive)
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    end = await settled(service, made, run)
    posts = receiver.at("/down")
    assert {post.id for post in posts[:4]} == {posts[0].id}
    assert receiver.callbacks("/down") == fired(await service.events(run["id"]))
    assert end["failures"] == 0
    assert (await service.http.post(redrive)).status_code == 409


async def test_a_receiver_that_is_gone_disables_its_endpoint(service: Service, receiver: Receiver) -> None:
    receiver.replies["/gone"] = [Reply(410), Reply(200)]
    made = await endpoint(service, receiver.url("/gone"))
    path = f"/v1/webhook-endpoints/{made['id']}"
    branch = await service.branch(chat_model=await service.scripted("hello", SAYING))
    first = await service.operate(branch)
    await settled(service, made, first, "dead")
    shown = await service.get(path)
    assert (shown["active"], shown["disabled_reason"]) == (False, "gone")
    await service.operate(branch)
    assert len((await service.get(f"{path}/deliveries"))["data"]) == 1
    assert len(receiver.at("/gone")) == 1
    changed = (await service.http.patch(path, json={"active": True})).json()
    assert (changed["active"], changed["disabled_at"], changed["disabled_reason"]) == (True, None, None)
    third = await service.operate(branch)
    await settled(service, made, third)


async def test_redirects_are_not_followed(service: Service, receiver: Receiver) -> None:
    receiver.replies["/moved"] = [Reply(307, {"Location": receiver.url("/elsewhere")}), Reply(200)]
    made = await endpoint(service, receiver.url("/moved"))
    branch = await service.branch(chat_model=await service.scripted("hello", SAYING))
    await settled(service, made, await service.operate(branch))
    assert receiver.at("/elsewhere") == []
    assert receiver.at("/moved")[0].id == receiver.at("/moved")[1].id


async def test_a_receiver_that_hangs_holds_up_nothing(service: Service, receiver: Receiver) -> None:
    release = asyncio.Event()
    receiver.replies["/hangs"] = [Reply(200, after=release)]
    hung, fine = [await endpoint(service, receiver.url(path)) for path in ("/hangs", "/fine")]
    model = await service.scripted("hello", SAYING)
    runs = [await service.operate(await service.branch(chat_model=model)) for _ in range(12)]
    for run in runs:
        await settled(service, fine, run)
    assert {(await delivery(service, hung, run))["status"] for run in runs} == {"pending"}
    assert 1 <= len(receiver.at("/hangs")) <= 8
    release.set()
    for run in runs:
        await settled(service, hung, run)
    told = [callback["run_id"] for callback in receiver.callbacks("/hangs")]
    assert [told.count(run["id"]) for run in runs] == [
        len(fired(await service.events(run["id"]))) for run in runs
    ]


async def test_a_run_that_had_to_queue_is_told_of_too(service: Service, receiver: Receiver) -> None:
    made = await endpoint(service, receiver.url("/queue"), event_types=["RUN_QUEUED", "RUN_COMPLETED"])
    slow: list[dict[str, Any]] = [{"text": "a"}, {"wait_ms": 300}, {"end": "stop"}]
    branch = await service.branch(chat_model=await service.scripted("slow", slow))
    runs = [await service.started(branch) for _ in range(3)]
    for run in runs:
        await settled(service, made, run)
    for number, run in enumerate(runs):
        told = [post.data for post in receiver.at("/queue") if post.data["run_id"] == run["id"]]
        types = [event["type"] for data in told for event in data["events"]]
        assert types == [*(["RUN_QUEUED"] if number else []), "RUN_COMPLETED"]
        callbacks = [callback for data in told for callback in data["callbacks"]]
        assert callbacks == fired(await service.events(run["id"]))
        assert told[-1]["events"][-1]["meta"]["result"] == "a"


async def test_an_endpoint_hears_what_it_asked_for(service: Service, receiver: Receiver) -> None:
    errors = await endpoint(service, receiver.url("/errors"), callbacks=["on_error"])
    every = ["on_token", "on_event", "on_complete", "on_tool_call"]
    tokens = await endpoint(service, receiver.url("/tokens"), callbacks=every)
    flaky = await service.scripted("flaky", *FLAKY)
    good = await service.operate(await service.branch(chat_model=await service.scripted("hello", SAYING)))
    bad = await service.operate(await service.branch(chat_model=flaky), lifecycle=AT_ONCE)
    for run in (good, bad):
        await settled(service, errors, run)
        await settled(service, tokens, run)
    (only,) = receiver.callbacks("/errors")
    assert (only["run_id"], only["name"], only["args"][0]["code"]) == (bad["id"], "on_error", "NETWORK_ERROR")
    assert (await delivery(service, errors, good))["posts"] == 0
    assert receiver.at("/errors")[-1].data["ended"] is True
    told = [one for one in receiver.callbacks("/tokens") if one["run_id"] == good["id"]]
    (complete,) = [e["meta"] for e in await service.events(good["id"]) if e["type"] == "COMPLETE"]
    assert [(one["name"], one["args"][0]) for one in told if one["name"] != "on_complete"] == [
        ("on_token", "hello"),
        ("on_event", {"type": "token", "text": "hello"}),
        ("on_event", {"type": "complete", **complete}),
    ]


async def test_posts_are_signed_with_both_secrets_for_a_day(service: Service, receiver: Receiver) -> None:
    made = await endpoint(service, receiver.url("/rotated"))
    answer = await service.http.post(f"/v1/webhook-endpoints/{made['id']}/rotate-secret")
    rotated = answer.json()
    assert rotated["secret"] != made["secret"]
    branch = await service.branch(chat_model=await service.scripted("hello", SAYING))
    await settled(service, made, await service.operate(branch))
    for post in receiver.at("/rotated"):
        post.verify(made["secret"])
        post.verify(rotated["secret"])


async def test_while_a_run_streams_its_callbacks_come_already(service: Service, receiver: Receiver) -> None:
    await endpoint(service, receiver.url("/live"))
    model = await service.scripted("endless", [{"text": "one"}, {"wait_ms": 60_000}, {"end": "stop"}])
    run = await service.started(await service.branch(chat_model=model), lifecycle={"timeout": None})
    await until(lambda: receiver.callbacks("/live"))
    assert receiver.callbacks("/live")[0]["name"] == "on_start"
    await service.http.post(f"/v1/runs/{run['id']}/cancel")

    def last() -> Received:
        return receiver.at("/live")[-1]

    await until(lambda: last().data["ended"])
    assert last().data["callbacks"][-1]["name"] == "on_abort"
