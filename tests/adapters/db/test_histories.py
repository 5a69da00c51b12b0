"""Conversations that are kept in memory: what they say is always what the database says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from uuid import UUID

import asyncpg
import pytest

from app.adapters.db.branch_states import read_branches
from app.adapters.db.branches import PostgresBranches
from app.adapters.db.engine import make_engine
from app.adapters.db.histories import Histories
from app.adapters.db.run_store import PostgresRuns
from app.adapters.db.session import Database
from app.core.errors import NotFound
from app.core.json_text import dumps
from app.core.messages import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantContent,
    Content,
    InstructionContent,
    SystemContent,
)
from app.core.operate.asking import ask_for
from app.core.operate.history import History
from app.core.operate.params import OperateParams
from app.core.operate.prompt import build_prompt
from app.core.prompt import Prompt, ToolSchema
from app.ports.catalog import SaidMessage
from app.ports.storage import Accepted, BranchState, NewMessage
from tests.adapters.db.test_run_store import PROJECT, World, world

pytestmark = pytest.mark.anyio

__all__ = ["world"]

ENOUGH = 1 << 25
ADD = ToolSchema("add", "Adds.", {"type": "object"})


class Talk:
    """Branches that two processes speak on, both of which keep conversations, and one that keeps none."""

    def __init__(self, world: World, branches: PostgresBranches) -> None:
        self.world = world
        self.branches = branches
        self.keeping = [world.another(history_bytes=ENOUGH) for _ in range(2)]
        self.fresh = world.another()

    async def turn(self, store: PostgresRuns, branch_id: UUID, *said: Content) -> None:
        """A run of `store` that adds messages; a response answers the request before it."""
        state = await store.branch_state(PROJECT, branch_id)
        new = self.world.run(branch_id, version=state.version, position=state.next_position)
        assert await store.accept(new) == Accepted(running=True)
        rows: list[NewMessage] = []
        for content in said:
            wire, request = content.wire(), None
            if isinstance(content, ActionResponseContent):
                request = rows[-1].id
                wire["action_request_id"] = str(request)
            id = self.world.ids.new()
            rows.append(NewMessage(id, content.kind, dumps(wire).decode(), action_request_id=request))
        await store.flush([self.world.flush(new, rows=rows)])
        result = await store.flush([self.world.end(new)])
        assert not result.lost

    async def rolled_back(self, store: PostgresRuns, branch_id: UUID, *said: Content) -> None:
        """A run that says something and is rolled back, while everybody reads what it says, by one that says
        nothing.
        """
        state = await store.branch_state(PROJECT, branch_id)
        seen: dict[str, int] = {"version": state.version, "position": state.next_position}
        gone, other = self.world.run(branch_id, **seen), self.world.run(branch_id, if_busy="rollback", **seen)
        assert await store.accept(gone) == Accepted(running=True)
        rows = [
            NewMessage(self.world.ids.new(), one.kind, dumps(one.wire()).decode())
            for one in said
            if not isinstance(one, ActionResponseContent)
        ]
        await store.flush([self.world.flush(gone, rows=rows[:1])])
        await self.agree(branch_id)
        assert await self.fresh.accept(other) == Accepted(running=False, replaces=gone.run.id)
        ending = self.world.end(gone, "cancelled")
        ending.rows = rows[1:]
        (started,) = (await store.flush([ending])).started
        ending = self.world.end(other)
        ending.epoch = started.epoch
        assert not (await store.flush([ending])).lost

    async def append(self, branch_id: UUID, *said: Content) -> None:
        """What a client adds over HTTP does."""
        messages = [SaidMessage(one.kind, dumps(one.wire()).decode(), None, None) for one in said]
        await self.branches.append(PROJECT, branch_id, messages)

    async def agree(self, branch_id: UUID) -> History:
        """Check that all see the same; what they see."""
        truth = await self.fresh.branch_state(PROJECT, branch_id)
        for store in self.keeping:
            state = await store.branch_state(PROJECT, branch_id)
            assert state.history.said == truth.history.said
            for native in (True, False):
                assert prompt(state, native) == prompt(truth, native)
        return truth.history

    async def close(self) -> None:
        for store in (*self.keeping, self.fresh):
            await store.close()


def prompt(state: BranchState, native: bool) -> Prompt:
    asked = OperateParams(instruction="now", chat_model="m", actions=True)
    asking = ask_for(asked, [ADD], takes_tools=native, takes_schema=native)
    return build_prompt(state.history, asked, asking, system=state.system)


@pytest.fixture
async def talk(world: World, database_url: str) -> AsyncIterator[Talk]:
    engine = make_engine(database_url)
    made = Talk(world, PostgresBranches(Database(engine), world.ids))
    yield made
    await made.close()
    await engine.dispose()


def spoken(chance: Random, number: int) -> list[Content]:
    """What one turn may leave: an answer, with calls that gave something, null, an error, or no end yet."""
    said: list[Content] = [InstructionContent(f"i{number}"), AssistantContent(f"a{number}")]
    for _ in range(chance.randrange(3)):
        said.append(ActionRequestContent("add", {"n": number}, None, chance.choice(["call_0", None])))
        output, error = chance.choice([(number, None), (None, None), ({"error": "no"}, "no")])
        said.append(ActionResponseContent("add", {"n": number}, output, "", error))
    return said


@pytest.mark.parametrize("seed", range(6))
async def test_whoever_adds_to_a_branch_all_see_the_same(talk: Talk, seed: int) -> None:
    chance = Random(seed)
    branches = [await talk.world.branch()]
    for number in range(40):
        branch_id = chance.choice(branches)
        match chance.randrange(9):
            case 0 | 1 | 2:
                await talk.turn(chance.choice(talk.keeping), branch_id, *spoken(chance, number))
            case 3:
                await talk.turn(talk.fresh, branch_id, *spoken(chance, number)[2:])
            case 4:
                await talk.append(branch_id, AssistantContent(f"b{number}"), SystemContent(f"s{number}"))
            case 5:
                text = chance.choice([None, f"p{number}"])
                await talk.branches.change(PROJECT, branch_id, {"system": text}, if_match=None)
            case 6:
                made = await talk.branches.fork(PROJECT, branch_id, at_message=None, name=None)
                branches.append(made.id)
            case 7:
                await talk.rolled_back(chance.choice(talk.keeping), branch_id, *spoken(chance, number))
            case _ if len(branches) > 1:
                branches.remove(branch_id)
                await talk.branches.delete(PROJECT, branch_id, if_match=None)
                for store in talk.keeping:
                    with pytest.raises(NotFound):
                        await store.branch_state(PROJECT, branch_id)
        for one in branches:
            if chance.random() < 0.7:
                await talk.agree(one)
    for one in branches:
        await talk.agree(one)


async def test_a_branch_whose_past_is_another_is_read_anew(talk: Talk) -> None:
    """As after a backup was put back, on which others have gone on since."""
    branch_id = await talk.world.branch()
    await talk.append(branch_id, *(InstructionContent(f"i{n}") for n in range(4)))
    await talk.agree(branch_id)
    await put_back(talk, 2)
    assert len((await talk.agree(branch_id)).said) == 2
    await put_back(talk, 1)
    await talk.append(branch_id, *(InstructionContent(f"j{n}") for n in range(3)))
    assert len((await talk.agree(branch_id)).said) == 4
    await put_back(talk, 0)
    assert len((await talk.agree(branch_id)).said) == 0


async def put_back(talk: Talk, position: int) -> None:
    """Have the only branch be as it was when its next message was to come at `position`."""
    await talk.world.connection.execute("DELETE FROM messages WHERE position >= $1", position)
    await talk.world.connection.execute("UPDATE branches SET next_position = $1", position)


@pytest.mark.parametrize("locked", ["branches", "messages"])
async def test_a_state_never_lacks_what_its_position_counts(talk: Talk, locked: str) -> None:
    """Messages come while it is half read: it may know too much, and is stale then, never too little."""
    branch_id = await talk.world.branch()
    await talk.append(branch_id, InstructionContent("first"))
    held = talk.world.connection
    transaction = held.transaction()
    await transaction.start()
    await held.execute(f"LOCK TABLE {locked} IN ACCESS EXCLUSIVE MODE")
    reading = asyncio.create_task(talk.keeping[0].branch_state(PROJECT, branch_id))
    await someone_waits(held)
    await held.execute(
        "INSERT INTO messages (id, project_id, branch_id, position, kind, content, created_at) "
        "VALUES ($1, $2, $3, 1, 'instruction', '{}', now())",
        talk.world.ids.new(),
        PROJECT,
        branch_id,
    )
    await held.execute("UPDATE branches SET next_position = 2 WHERE id = $1", branch_id)
    await transaction.commit()
    state = await reading
    assert len(state.history.said) >= state.next_position
    await talk.agree(branch_id)


async def someone_waits(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Return when somebody is kept waiting by the connection's transaction."""
    for _ in range(1_000):
        if await connection.fetchval(
            "SELECT true FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        ):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody came to wait")


async def test_what_is_kept_is_bounded_and_the_longest_unused_gives_way(talk: Talk) -> None:
    branches = [await talk.world.branch() for _ in range(5)]
    for branch_id in branches:
        await talk.append(branch_id, InstructionContent("x" * 1_000))

    async def read(kept: Histories, branch_id: UUID) -> History:
        return (await read_branches(talk.world.connection, kept, [branch_id]))[1][branch_id]

    one = (await read(Histories(0), branches[0])).size
    kept = Histories(3 * one)

    first, second, _ = [await read(kept, branch_id) for branch_id in branches[:3]]
    assert await read(kept, branches[0]) is first
    await read(kept, branches[3])
    assert await read(kept, branches[0]) is first
    assert await read(kept, branches[1]) is not second
    assert kept.size == 3 * one
    for branch_id in branches:
        assert len((await read(kept, branch_id)).said) == 1
        assert kept.size <= 3 * one


async def test_what_is_too_large_to_be_kept_is_read_each_time(talk: Talk) -> None:
    branch_id = await talk.world.branch()
    await talk.append(branch_id, InstructionContent("short"))
    kept = Histories(10_000)
    await read_branches(talk.world.connection, kept, [branch_id])
    assert 0 < kept.size <= 10_000
    await talk.append(branch_id, InstructionContent("x" * 10_000))
    for _ in range(2):
        _, found = await read_branches(talk.world.connection, kept, [branch_id])
        assert len(found[branch_id].said) == 2
        assert kept.size == 0


async def test_a_run_that_does_not_converse_reads_no_conversation(talk: Talk) -> None:
    quiet, loud = await talk.world.branch(), await talk.world.branch()
    store = talk.keeping[0]
    for branch_id in (quiet, loud):
        await talk.append(branch_id, InstructionContent("hello"))
    truth = await talk.agree(loud)
    alone, heard, beside = await asyncio.gather(
        store.branch_state(PROJECT, quiet, conversation=False),
        store.branch_state(PROJECT, loud),
        store.branch_state(PROJECT, loud, conversation=False),
    )
    assert (alone.next_position, alone.conversation, beside.conversation) == (1, None, None)
    assert heard.history.said == truth.said
    with pytest.raises(AssertionError):
        _ = alone.history
    assert len((await talk.agree(quiet)).said) == 1
