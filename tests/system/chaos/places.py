"""What has to hold whatever befell: of runs that are told to end, and of those that take their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.system.chaos.conversations import by_branch, in_order
from tests.system.chaos.evidence import Evidence, Recorded
from tests.system.chaos.invariants import Invariant
from tests.system.chaos.wishes import ENDING

WORK = frozenset({"ATTEMPT_START", "FALLBACK_START", "STREAM_READY", "TOOL_START"})
"""What a run begins that has something to do yet. Proposals are recorded nevertheless, to be answered."""


def every_place_was_asked_for(seen: Evidence) -> Iterator[str]:
    """A run takes the place of one on its own branch, if its client wanted that."""
    runs = {recorded.id: recorded for recorded in seen.runs}
    by_task = {wish.task: wish for wish in seen.wishes}
    for recorded in seen.runs:
        if recorded.replaces is None:
            continue
        wish, replaced = by_task.get(str(recorded.key)), runs.get(recorded.replaces)
        if wish is None or wish.if_busy not in ENDING:
            yield f"{recorded} took the place of {replaced} unasked"
        elif replaced is None or replaced.run["branch_id"] != recorded.run["branch_id"]:
            yield f"{recorded} took the place of {replaced}, which is not on its branch"


def what_takes_a_place_goes_first(seen: Evidence) -> Iterator[str]:
    """Between the run that was to end and the one in its place come others of that kind at most."""
    for branch, runs in by_branch(seen).items():
        begun = in_order(runs)
        at = {recorded.id: n for n, recorded in enumerate(begun)}
        for n, recorded in enumerate(begun):
            before = at.get(str(recorded.replaces), n)
            for other in begun[before + 1 : n]:
                if other.replaces is None:
                    yield f"branch {branch}: {other} came before {recorded}, which replaces an earlier one"


def what_was_rolled_back_is_left_out(seen: Evidence) -> Iterator[str]:
    """All that such a run said, and nothing that any other did; it is kept."""
    by_task = {wish.task: wish for wish in seen.wishes}
    wanted = {
        recorded.replaces
        for recorded in seen.runs
        if (wish := by_task.get(str(recorded.key))) is not None and wish.if_busy == "rollback"
    }
    for recorded in seen.runs:
        if recorded.superseded != (recorded.id in wanted):
            yield f"{recorded} was{'' if recorded.superseded else ' not'} rolled back"
    superseded = {recorded.id for recorded in seen.runs if recorded.superseded}
    for branch, messages in seen.messages.items():
        for message in messages:
            if message["superseded"] != (message["run_id"] in superseded):
                yield f"branch {branch}: a message of {message['run_id']} counts wrongly: {message}"
        if seen.shown[branch] != [message for message in messages if not message["superseded"]]:
            yield f"branch {branch} shows {[message['id'] for message in seen.shown[branch]]}"


def what_is_to_end_is_not_gone_on_with(seen: Evidence) -> Iterator[str]:
    """Whoever takes over a run that somebody was told would end only ends it."""
    runs = {recorded.id: recorded for recorded in seen.runs}
    for wish in seen.wishes:
        for run_id, epoch in wish.to_end.items():
            if begun := [kind for kind in _after_takeover(runs[run_id], epoch) if kind in WORK]:
                yield f"{runs[run_id]} was to end when {epoch} held it, and then began {begun}"


def _after_takeover(recorded: Recorded, epoch: int) -> Sequence[str]:
    """The types of what was told by those who took the run over after this holder."""
    for n, event in enumerate(recorded.events):
        if event["type"] == "RUN_RECOVERED" and event["meta"]["epoch"] > epoch:
            return recorded.types[n:]
    return ()


OF_PLACES: Sequence[Invariant] = (
    every_place_was_asked_for,
    what_takes_a_place_goes_first,
    what_was_rolled_back_is_left_out,
    what_is_to_end_is_not_gone_on_with,
)
