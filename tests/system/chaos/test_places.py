"""What the invariants say of runs that took others' places, and of votes, when something is wrong."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.polling import until
from tests.support.postgres import PostgresServer
from tests.system.chaos.evidence import Evidence
from tests.system.chaos.flaky import CHARGE, ECHO
from tests.system.chaos.servers import MODEL
from tests.system.chaos.spoiling import Calm, Spoil, calm, complaints, event_of, of, wish_of
from tests.system.chaos.wishes import Wish

pytestmark = pytest.mark.anyio

VOTE, FREE, LOST, BACK, HALTED, URGENT, LATER = (f"task-{n:012x}" for n in range(7))


def _wish(task: str, branch: str | None, kind: str, body: dict[str, Any]) -> Wish:
    return Wish(task, branch, kind, body, "async", None, None, [], twins=2)


def _vote(task: str, branch: str | None) -> Wish:
    body: dict[str, Any] = {"instruction": task, "voters": [MODEL] * 3, "strategy": "unanimous"}
    return _wish(task, branch, "consensus", body if branch is None else {**body, "branch_id": branch})


def _asks_people(task: str, branch: str) -> Wish:
    """An act that says something, and then waits for as long as nobody works."""
    charge = {"function": CHARGE, "arguments": {"task": task}}
    echo = {"function": ECHO, "arguments": {"value": task}}
    return _wish(task, branch, "act", {"requests": [charge, echo], "strategy": "sequential"})


async def _replaced(made: Calm, wish: Wish, taking: Wish, behind: Wish | None = None) -> None:
    """See to a run that waits, to another behind it, and then to one that takes its place."""
    async with asyncio.TaskGroup() as group:
        group.create_task(made.client.see_to(wish))
        await until(lambda: any(event["type"] == "RUN_WAITING" for event in wish.events), within_s=60)
        if behind is not None:
            group.create_task(made.client.see_to(behind))
            await until(lambda: behind.run_ids, within_s=60)
        group.create_task(made.client.see_to(taking))


@pytest.fixture(scope="module")
async def well(postgres: PostgresServer) -> AsyncIterator[Evidence]:
    """Two votes; a run that was rolled back, and one that was interrupted, with another behind it."""
    async with calm(postgres) as made:
        branch = made.branch
        vote, free = _vote(VOTE, branch), _vote(FREE, None)
        lost, halted = _asks_people(LOST, branch), _asks_people(HALTED, branch)
        back, urgent, later = (
            _wish(task, branch, "operate", {"instruction": task, **how})
            for task, how in (
                (BACK, {"if_busy": "rollback"}),
                (URGENT, {"if_busy": "interrupt"}),
                (LATER, {}),
            )
        )
        await made.client.see_to(vote)
        await made.client.see_to(free)
        await _replaced(made, lost, back)
        await _replaced(made, halted, urgent, later)
        yield await made.gathered([vote, free, lost, back, halted, urgent, later])


async def test_a_record_that_is_well_is_not_complained_of(well: Evidence) -> None:
    assert complaints(well) == {}
    statuses = {str(recorded.key): recorded.run["status"] for recorded in well.runs}
    assert statuses == {
        **dict.fromkeys((VOTE, FREE, BACK, URGENT, LATER), "completed"),
        **dict.fromkeys((LOST, HALTED), "cancelled"),
    }
    for task, instead in ((LOST, BACK), (HALTED, URGENT)):
        run = of(well, task)
        assert of(well, instead).replaces == run.id
        assert list(wish_of(well, instead).to_end) == [run.id]
        assert run.superseded is (task == LOST)
    assert all(wish.replays >= 2 for wish in well.wishes)


def _unasked(seen: Any) -> None:
    del wish_of(seen, URGENT).body["if_busy"]


def _on_another_branch(seen: Any) -> None:
    of(seen, HALTED).run["branch_id"] = "another"


def _cancelled_for_nothing(seen: Any) -> None:
    of(seen, URGENT).replaces = None


def _failed_to_agree(seen: Any) -> None:
    run = of(seen, VOTE).run
    error = {"code": "CONSENSUS_FAILED", "detail": {"outputs": run["result"]["outputs"]}}
    run |= {"status": "failed", "result": None, "error": error}


def _overtaken(seen: Any) -> None:
    """The run that was behind comes first after all."""
    one, other = of(seen, URGENT), of(seen, LATER)
    one.events, other.events = other.events, one.events


def _overtakes(seen: Any) -> None:
    """The order is that of one that takes a place, which it does not."""
    of(seen, URGENT).replaces = None


def _still_counts(seen: Any) -> None:
    of(seen, LOST).superseded = False


def _counts_no_more(seen: Any) -> None:
    of(seen, HALTED).superseded = True


def _message_of(seen: Any, task: str) -> Any:
    (messages,) = seen.messages.values()
    return next(message for message in messages if message["run_id"] == of(seen, task).id)


def _one_message_counts(seen: Any) -> None:
    _message_of(seen, LOST)["superseded"] = False


def _still_shown(seen: Any) -> None:
    (shown,) = seen.shown.values()
    shown.append(_message_of(seen, LOST))


def _deleted(seen: Any) -> None:
    (messages,) = seen.messages.values()
    gone = {message["id"] for message in messages if message["run_id"] == of(seen, URGENT).id}
    for kept in (*seen.messages.values(), *seen.shown.values()):
        kept[:] = [message for message in kept if message["id"] not in gone]


def _told_what_was_rolled_back(seen: Any) -> None:
    task, branch = f"task-{9:012x}", next(iter(seen.messages))
    said = {**_message_of(seen, VOTE), "content": {"instruction": task}, "superseded": True}
    seen.messages[branch].insert(2, said)
    request = next(r for r in seen.model_requests if URGENT in str(r.body["messages"][-1]))
    request.body["messages"].insert(2, {"role": "user", "content": task})


def _gone_on_with(seen: Any) -> None:
    begun = event_of(seen, HALTED, "TOOL_START")
    recovered = {**begun, "type": "RUN_RECOVERED", "meta": {"epoch": 9, "cause": "lease_expired"}}
    of(seen, HALTED).events[-1:-1] = [recovered, begun]


def _voted_twice(seen: Any) -> None:
    of(seen, VOTE).events.append(event_of(seen, VOTE, "CONSENSUS_OUTPUT_COLLECTED"))


def _a_voter_too_many(seen: Any) -> None:
    of(seen, VOTE).events.append(event_of(seen, VOTE, "SESSION_START"))


def _a_vote_lost(seen: Any) -> None:
    of(seen, FREE).run["result"]["outputs"].pop()


def _a_vote_not_collected(seen: Any) -> None:
    of(seen, FREE).events.remove(event_of(seen, FREE, "CONSENSUS_OUTPUT_COLLECTED"))


def _a_word_lost(seen: Any) -> None:
    event_of(seen, VOTE, "TOKEN")["meta"]["text"] = "x"


def _another_output(seen: Any) -> None:
    of(seen, VOTE).run["result"]["outputs"][1]["text"] = "x"


def _agreed_on_another(seen: Any) -> None:
    of(seen, FREE).run["result"]["result"] = "x"


def _agreed_by_fewer(seen: Any) -> None:
    of(seen, FREE).run["result"]["agreement_ratio"] = 0.5


SPOILT: dict[Spoil, str] = {
    _unasked: "every_place_was_asked_for",
    _on_another_branch: "every_place_was_asked_for",
    _cancelled_for_nothing: "every_failure_has_a_reason",
    _failed_to_agree: "every_failure_has_a_reason",
    _overtaken: "what_takes_a_place_goes_first",
    _overtakes: "the_queue_keeps_its_order",
    _still_counts: "what_was_rolled_back_is_left_out",
    _counts_no_more: "what_was_rolled_back_is_left_out",
    _one_message_counts: "what_was_rolled_back_is_left_out",
    _still_shown: "what_was_rolled_back_is_left_out",
    _deleted: "every_conversation_is_well_formed",
    _told_what_was_rolled_back: "every_model_was_told_the_conversation",
    _gone_on_with: "what_is_to_end_is_not_gone_on_with",
    _voted_twice: "every_voter_is_heard_once",
    _a_voter_too_many: "every_voter_is_heard_once",
    _a_vote_lost: "every_voter_is_heard_once",
    _a_vote_not_collected: "every_voter_is_heard_once",
    _a_word_lost: "every_vote_is_what_the_model_said",
    _another_output: "every_vote_is_what_the_model_said",
    _agreed_on_another: "every_vote_is_what_the_model_said",
    _agreed_by_fewer: "every_vote_is_what_the_model_said",
}


@pytest.mark.parametrize("spoil", SPOILT, ids=[f"{n}-{name}" for n, name in enumerate(SPOILT.values())])
async def test_what_is_wrong_is_complained_of(well: Evidence, spoil: Spoil) -> None:
    seen = copy.deepcopy(well)
    spoil(seen)
    assert SPOILT[spoil] in complaints(seen)
