"""A log that refers to its texts, over HTTP: the same for whoever reads it, from anywhere, at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.adapters.ambient import SystemClock, Uuid7Ids
from app.adapters.db.engine import driver_arguments
from app.adapters.db.run_store import PostgresRuns
from app.core.events.run import RunStarted
from app.core.texts import MAX_SHOWN
from app.ports.storage import Accepted, NewRun, RunRecord
from app.services.entries import entry_of
from app.services.execution import Execution
from app.services.feed import Feeds
from app.services.recorder import Recorder
from tests.support.database import migrated
from tests.support.logs import Writer
from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = pytest.mark.anyio

LEASE_MS = 600_000


@dataclass
class Desk:
    """A service, and what writes runs by hand: in the process of the service, or as another process would."""

    service: Service
    store: PostgresRuns
    elsewhere: Recorder
    project: UUID

    async def run(self, *, here: bool) -> tuple[RunRecord, Writer]:
        """A run that has just started."""
        clock = SystemClock()
        branch = UUID(await self.service.branch())
        record = RunRecord(
            Uuid7Ids().new(), self.project, branch, "operate", "running", "{}", datetime.now(UTC)
        )
        first = [entry_of(RunStarted(), 1, clock.wall_ms())]
        new = NewRun(record, seen_version=1, seen_position=0, entries=first, queued=first)
        assert await self.store.accept(new) == Accepted(running=True)
        record.epoch = 1
        recorder = self.service.made.recorder if here else self.elsewhere
        return record, Writer(recorder.open(record, first))

    async def read(self, run: RunRecord, query: str, limit: int) -> list[dict[str, Any]]:
        """All pages."""
        out: list[dict[str, Any]] = []
        after: str | None = "0"
        while after is not None:
            page = await self.service.get(f"/v1/runs/{run.id}/events?{query}&limit={limit}&after={after}")
            out += page["data"]
            after = page["next"]
        return out

    async def heard(self, run: RunRecord, query: str = "", after: int = 0) -> list[dict[str, Any]]:
        """What a stream says, to its end."""
        path = f"/v1/runs/{run.id}/events?{query}"
        frames = self.service.stream("GET", path, headers={"Last-Event-ID": str(after)} if after else None)
        return [frame.data async for frame in frames if frame.event != "stream.end"]


@pytest.fixture(scope="module")
async def desk(postgres: PostgresServer) -> AsyncIterator[Desk]:
    async with migrated(postgres) as url, running(url) as service:
        clock = SystemClock()
        store = PostgresRuns(driver_arguments(url), owner=uuid4(), lease_ms=LEASE_MS, clock=clock)
        elsewhere = Recorder(store, Feeds(), clock, lambda started: None)
        work = asyncio.create_task(elsewhere.work())
        (project,) = (await service.get("/v1/projects"))["data"]
        yield Desk(service, store, elsewhere, UUID(project["id"]))
        work.cancel()
        await asyncio.wait([work])
        await store.close()


async def finish(run: RunRecord, writer: Writer) -> None:
    """The run's good end."""
    Execution(run, writer.log).finish("completed", result='"done"')
    await writer.log.committed()


async def write_some(writer: Writer) -> None:
    """A dozen tokens with checkpoints, in many commits, with a second stream in between."""
    for count in range(12):
        writer.say(f"wörd{count} ")
        writer.say("aside ", stream=1)
        if count % 3 == 2:
            writer.save(len(writer.texts[0]) - 2)
            await writer.log.committed()
    writer.save(len(writer.texts[1]), stream=1)
    await writer.log.committed()


async def write_more(writer: Writer) -> None:
    """A retry that goes on, one that begins anew, and a text that becomes too long to be shown."""
    writer.cut(20)
    await write_some(writer)
    writer.cut(0)
    await write_some(writer)
    writer.say("x" * MAX_SHOWN)
    writer.save(MAX_SHOWN)
    await writer.log.committed()
    writer.save(MAX_SHOWN + 1)
    writer.complete(stream=1)
    writer.complete()
    await writer.log.committed()


QUERIES = ("view=events", "types=CHECKPOINT_SAVED,COMPLETE", "view=callbacks", "aliases=structured")


@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
async def test_a_log_reads_the_same_live_later_and_from_anywhere(desk: Desk, here: bool) -> None:
    run, writer = await desk.run(here=here)
    first = asyncio.create_task(desk.heard(run))
    await write_some(writer)
    middle = writer.log.seq - 7
    late = {query: asyncio.create_task(desk.heard(run, query, middle)) for query in QUERIES}
    await write_more(writer)
    await finish(run, writer)
    whole = await first
    assert [event["seq"] for event in whole] == list(range(1, writer.log.seq + 1))
    for query in QUERIES:
        all_of_it = await desk.heard(run, query)
        assert await late[query] == [item for item in all_of_it if item["seq"] > middle]
        for limit in (1, 7, 1000):
            assert await desk.read(run, query, limit) == all_of_it
    for seq in range(1, writer.log.seq):
        assert await desk.heard(run, after=seq) == whole[seq:]
    for seq, text in writer.shown.items():
        meta = whole[seq - 1]["meta"]
        assert (meta["state"]["content"] if "state" in meta else meta["checkpoint"]) == text


@pytest.mark.parametrize("first", ["from the start", "from the middle"])
async def test_who_shares_frames_of_a_live_run_may_have_begun_anywhere(desk: Desk, first: str) -> None:
    run, writer = await desk.run(here=True)
    await write_some(writer)
    middle = writer.log.seq - 7
    cursors = (0, middle) if first == "from the start" else (middle, 0)
    feed = writer.log.feed
    followers = []
    for cursor in cursors:
        followers.append(asyncio.create_task(desk.heard(run, after=cursor)))
        await until(lambda: feed.watchers == len(followers))
    await write_more(writer)
    await finish(run, writer)
    heard = dict(zip(cursors, [await follower for follower in followers], strict=True))
    assert heard[0] == await desk.read(run, "view=events", 1000)
    assert heard[middle] == heard[0][middle:]


async def test_a_text_that_is_too_long_can_be_fetched(desk: Desk) -> None:
    run, writer = await desk.run(here=False)
    await write_more(writer)
    await finish(run, writer)
    (*_, saved) = await desk.read(run, "types=CHECKPOINT_SAVED", 1000)
    reference = saved["meta"]["checkpointRef"]
    assert saved["meta"]["checkpoint"] is None
    assert reference["length"] == MAX_SHOWN + 1
    path = f"/v1/runs/{run.id}/text?stream_id={saved['stream_id']}&to_seq={reference['to_seq']}"
    text = (await desk.service.get(path))["text"]
    assert text == writer.texts[0]
    (*_, complete) = await desk.read(run, "types=COMPLETE", 1000)
    assert complete["meta"]["state"]["contentRef"] == {**reference, "length": len(text)}
    assert complete["callbacks"][0]["args"] == [complete["meta"]["state"]]


async def test_the_text_at_every_event_of_every_stream(desk: Desk) -> None:
    run, writer = await desk.run(here=True)
    await write_some(writer)
    writer.cut(11)
    writer.say("new")
    writer.fall_back(stream=1)
    await writer.log.committed()
    texts = {"": ""}
    events = await desk.read(run, "view=events", 1000)
    main = next(event["stream_id"] for event in events if event["stream_id"])
    for event in events:
        stream, meta = event["stream_id"], event["meta"]
        if stream is None:
            continue
        before = texts.get(stream, "")
        texts[stream] = before[: meta.get("contentOffset", len(before))] + meta.get("text", "")
        path = f"/v1/runs/{run.id}/text?to_seq={event['seq']}"
        assert await desk.service.get(f"{path}&stream_id={stream}") == {
            "run_id": str(run.id),
            "stream_id": stream,
            "to_seq": event["seq"],
            "text": texts[stream],
            "length": len(texts[stream]),
        }
        assert (await desk.service.get(path))["text"] == texts.get(main, "")
    now = await desk.service.get(f"/v1/runs/{run.id}/text")
    assert (now["text"], now["to_seq"], now["stream_id"]) == (writer.texts[0], writer.log.seq, main)
    await finish(run, writer)


async def test_a_filtered_page_reads_on_until_it_is_full(desk: Desk) -> None:
    run, writer = await desk.run(here=False)
    for count in range(1, 2_501):
        writer.say("w")
        if count % 400 == 0:
            writer.save(count)
    await finish(run, writer)
    saved = await desk.read(run, "types=CHECKPOINT_SAVED", 1000)
    assert [event["seq"] for event in saved] == list(writer.shown)
    assert [event["meta"]["checkpoint"] for event in saved] == list(writer.shown.values())
    for limit in (1, 2, 4, 5):
        path = f"/v1/runs/{run.id}/events?types=CHECKPOINT_SAVED&limit={limit}"
        page = await desk.service.get(path)
        assert (page["data"], page["has_more"]) == (saved[:limit], True)
        assert await desk.read(run, "types=CHECKPOINT_SAVED", limit) == saved
