"""What has to hold whatever befell: of runs that ask several models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.support.service import text_of_stream
from tests.system.chaos.evidence import Evidence, Json, Recorded
from tests.system.chaos.flaky import answer
from tests.system.chaos.invariants import Invariant

_ONCE = ("CONSENSUS_STREAM_START", "CONSENSUS_STREAM_END", "CONSENSUS_OUTPUT_COLLECTED")
"""What is told of each voter, once at most."""


def every_voter_is_heard_once(seen: Evidence) -> Iterator[str]:
    """There is a stream for each, with one beginning and one end, and no vote counts twice."""
    voters = {wish.task: len(wish.body["voters"]) for wish in seen.wishes if wish.kind == "consensus"}
    for recorded in _asking(seen):
        most = voters[str(recorded.key)]
        told = Counter(
            (event["type"], event["meta"]["index"]) for event in recorded.events if event["type"] in _ONCE
        )
        if doubled := [what for what, count in told.items() if count > 1 or what[1] >= most]:
            yield f"{recorded} told {doubled} more than once, or of nobody"
        if recorded.types.count("SESSION_START") > most:
            yield f"{recorded} has more streams than voters"
        if recorded.run["status"] == "completed":
            outputs = recorded.run["result"]["outputs"]
            counted = {index for kind, index in told if kind == "CONSENSUS_OUTPUT_COLLECTED"}
            if [out["index"] for out in outputs] != list(range(most)):
                yield f"{recorded} has the outputs {outputs}"
            elif counted != {out["index"] for out in outputs if out["ok"]}:
                yield f"{recorded} collected {counted}, and has the outputs {outputs}"


def every_vote_is_what_the_model_said(seen: Evidence) -> Iterator[str]:
    """In each voter's stream, in its output, and in what was agreed on."""
    for recorded in _asking(seen):
        said = answer(str(recorded.key))
        for stream in _whole(recorded.events):
            if (text := text_of_stream(recorded.events, stream)) != "".join(said):
                yield f"{recorded}: a voter has the text {text!r}, and the model said {said}"
        if recorded.run["status"] != "completed":
            continue
        result = recorded.run["result"]
        outputs = [out["text"] for out in result["outputs"] if out["ok"]]
        if {result["result"], *outputs} != {"".join(said)}:
            yield f"{recorded} has the result {result['result']!r} of {outputs}, and the model said {said}"
        share = len(outputs) / len(result["outputs"])
        if abs(result["agreement_ratio"] - share) > 1e-6:
            yield f"{recorded} agreed by {result['agreement_ratio']}, and {share} of all said the same"


def _asking(seen: Evidence) -> Iterator[Recorded]:
    return (recorded for recorded in seen.runs if recorded.run["kind"] == "consensus" and recorded.key)


def _whole(events: Sequence[Json]) -> set[str]:
    return {event["stream_id"] for event in events if event["type"] == "COMPLETE"}


OF_VOTERS: Sequence[Invariant] = (every_voter_is_heard_once, every_vote_is_what_the_model_said)
