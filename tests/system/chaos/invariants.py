"""What has to hold whatever befell: of each run, its log, and those who heard of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tests.support.invariants import assert_log
from tests.support.service import text_by_offset
from tests.system.chaos.evidence import TERMINAL, Evidence, Recorded
from tests.system.chaos.flaky import answer

MOST_RECOVERIES: Final = 3
"""After so many a run may fail as RECOVERY_EXHAUSTED."""

MODEL_FAULTS: Final = frozenset(
    {
        *("NETWORK_ERROR", "INITIAL_TOKEN_TIMEOUT", "INTER_TOKEN_TIMEOUT", "RATE_LIMITED", "PROVIDER_ERROR"),
        *("STREAM_TRUNCATED", "INVALID_TOOL_ARGUMENTS", "ZERO_OUTPUT", "ALL_STREAMS_EXHAUSTED"),
    }
)
"""Under which codes a run may fail when the model would not answer."""

Invariant = Callable[[Evidence], Iterator[str]]


def every_run_has_ended(seen: Evidence) -> Iterator[str]:
    """Once, with one terminal event, which is the last and says what the run says."""
    for recorded in seen.runs:
        run, events = recorded.run, recorded.events
        ends = [TERMINAL[event["type"]] for event in events if event["type"] in TERMINAL]
        if run["status"] not in TERMINAL.values():
            yield f"{recorded} has not ended"
        elif ends != [run["status"]] or events[-1]["type"] not in TERMINAL:
            yield f"{recorded} has the terminal events {ends}, the last event is {events[-1]['type']}"
        elif events[-1]["meta"]["status"] != run["status"] or events[-1]["meta"]["error"] != run["error"]:
            yield f"{recorded} ends otherwise in its last event: {events[-1]['meta']}"
        elif run["status"] == "completed" and events[-1]["meta"]["result"] != run["result"]:
            yield f"{recorded} has another result in its last event"


def every_log_is_whole(seen: Evidence) -> Iterator[str]:
    """Numbered from 1 without a gap, and what every log is."""
    for recorded in seen.runs:
        seqs = [event["seq"] for event in recorded.events]
        if seqs != list(range(1, recorded.run["last_seq"] + 1)):
            yield f"{recorded} has {seqs} up to {recorded.run['last_seq']}"
        try:
            assert_log(recorded.events)
        except AssertionError as fault:
            yield f"{recorded}: {fault}"


def every_failure_has_a_reason(seen: Evidence) -> Iterator[str]:
    """A run fails only for what its model did, or the processes that it cost; none is cancelled unasked."""
    cancelled = {wish.task for wish in seen.wishes if wish.cancel_sent}
    replaced = {recorded.replaces for recorded in seen.runs}
    for recorded in seen.runs:
        status = recorded.run["status"]
        if status == "failed" and not _may_fail(recorded):
            yield f"{recorded} should not have failed: {recorded.run['error']}"
        if status == "expired":
            yield f"{recorded} should not have expired"
        if status == "cancelled" and recorded.key not in cancelled and recorded.id not in replaced:
            yield f"{recorded} was cancelled by nobody"


def _may_fail(recorded: Recorded) -> bool:
    if recorded.code in MODEL_FAULTS:
        return str(recorded.run["kind"]) in ("operate", "consensus")
    if recorded.code == "CONSENSUS_FAILED":
        return any(not out["ok"] for out in recorded.run["error"]["detail"]["outputs"])
    return recorded.code == "RECOVERY_EXHAUSTED" and recorded.types.count("RUN_RECOVERED") >= MOST_RECOVERIES


def every_client_heard_the_log(seen: Evidence) -> Iterator[str]:
    """What came over all streams, joined, is what is stored, without a gap and without a double."""
    for wish in seen.wishes:
        recorded = seen.run_of(wish)
        if recorded is None or not wish.run_ids:
            continue
        heard, stored = wish.events, recorded.events
        if not wish.heard_the_end:
            yield f"{recorded}: its client never heard the end"
        elif [event["seq"] for event in heard] != [event["seq"] for event in stored]:
            numbers = [event["seq"] for event in heard]
            yield f"{recorded}: heard were {numbers} of {len(stored)}, over {wish.streams} streams"
        elif differing := [e["seq"] for e, other in zip(heard, stored, strict=True) if e != other]:
            yield f"{recorded}: {differing} were heard otherwise than they are stored"


def every_answer_was_true(seen: Evidence) -> Iterator[str]:
    """An end that some answer told is the run's end for good."""
    for wish in seen.wishes:
        recorded = seen.run_of(wish)
        told = set(wish.ends_told)
        if told and (recorded is None or told != {recorded.run["status"]}):
            yield f"{recorded or wish.task}: answers told {told}"


def every_wish_has_one_run(seen: Evidence) -> Iterator[str]:
    """However often it was sent, and to however many replicas."""
    by_key = Counter(recorded.key for recorded in seen.runs)
    wanted = {wish.task for wish in seen.wishes}
    for recorded in seen.runs:
        if recorded.key not in wanted or by_key[recorded.key] != 1:
            yield f"{recorded} is one of {by_key[recorded.key]} for its key"
    for wish in seen.wishes:
        found = seen.run_of(wish)
        if len(wish.run_ids) > 1 or (found is not None and not wish.run_ids <= {found.id}):
            yield f"{wish.task} was told of {wish.run_ids}, and its run is {found}"
        elif found is None and (wish.run_ids or not wish.refused):
            yield f"{wish.task} has no run, and was told of {wish.run_ids or 'none'}"


def every_text_is_the_result(seen: Evidence) -> Iterator[str]:
    """As a client puts it together from the events, and as the model would have it."""
    for recorded in seen.runs:
        run = recorded.run
        if run["kind"] != "operate" or run["status"] != "completed":
            continue
        text, said = text_by_offset(recorded.events), "".join(answer(str(recorded.key)))
        result = run["result"]
        if text != said:
            yield f"{recorded} has the text {text!r}, and the model said {said!r}"
        if isinstance(result, str) and result != text:
            yield f"{recorded} has the result {result!r}, and the text {text!r}"


OF_RUNS: Sequence[Invariant] = (
    every_run_has_ended,
    every_log_is_whole,
    every_failure_has_a_reason,
    every_client_heard_the_log,
    every_answer_was_true,
    every_wish_has_one_run,
    every_text_is_the_result,
)
