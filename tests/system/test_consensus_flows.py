"""The golden flows of consensus over HTTP: what happens to the run, to each voter, and what comes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import DATA
from tests.support.flows import assert_walked, fits
from tests.support.service import Service
from tests.system.test_flows import lines_of

pytestmark = pytest.mark.anyio

_READ = json.loads((DATA / "consensus_flows.json").read_text("utf-8"))
SEQUENCES: dict[str, Any] = _READ["sequences"]
FLOWS: dict[str, Any] = {flow["name"]: flow for flow in _READ["flows"]}

ENDS = ("CONSENSUS_STREAM_END", "CONSENSUS_OUTPUT_COLLECTED")


@dataclass(frozen=True)
class Walked:
    """A flow's run at its end."""

    run: dict[str, Any]
    events: list[dict[str, Any]]

    @property
    def of_the_run(self) -> list[dict[str, Any]]:
        """Events that belong to no stream, the ends of voters in the order of their indices."""
        found = [event for event in self.events if event["stream_id"] is None]
        places = [at for at, event in enumerate(found) if event["type"] in ENDS]
        ends = sorted((found[at] for at in places), key=lambda event: event["meta"]["index"])
        for at, event in zip(places, ends, strict=True):
            found[at] = event
        return found

    @property
    def streams(self) -> dict[int, list[dict[str, Any]]]:
        """The events of each voter's stream."""
        ids = {
            event["meta"]["index"]: event["stream_id"]
            for event in self.events
            if event["type"] == "SESSION_START"
        }
        return {
            index: [event for event in self.events if event["stream_id"] == stream]
            for index, stream in ids.items()
        }


async def walk(service: Service, flow: Mapping[str, Any]) -> Walked:
    """Run a flow on models of its own."""
    names = [f"{flow['name']}-{at}" for at in range(len(flow["streams"]))]
    for name, stream in zip(names, flow["streams"], strict=True):
        await service.scripted(name, *stream["attempts"])
    weights = flow.get("weights")
    voters: Sequence[Any] = names
    if weights:
        voters = [{"model": name, "weight": weight} for name, weight in zip(names, weights, strict=True)]
    run = await service.consensus(voters, lifecycle=flow["options"], **flow["request"])
    return Walked(run, await service.events(run["id"]))


@pytest.fixture(scope="module")
async def walks(service: Service) -> Mapping[str, Walked]:
    """Every flow, all at the same time."""
    walked = await asyncio.gather(*(walk(service, flow) for flow in FLOWS.values()))
    return dict(zip(FLOWS, walked, strict=True))


@pytest.mark.parametrize("name", FLOWS)
async def test_flow(walks: Mapping[str, Walked], name: str) -> None:
    flow, walked = FLOWS[name], walks[name]
    assert_walked(flow, lines_of(walked.of_the_run))
    assert walked.run["status"] == flow["run_status"]
    assert (walked.run["error"] or {}).get("code") == flow.get("error_code")
    if flow["result"] is None:
        assert walked.run["result"] is None
    else:
        assert fits(flow["result"], walked.run["result"]), walked.run["result"]
        last = walked.events[-1]
        assert (last["type"], last["meta"]["result"]) == ("RUN_COMPLETED", walked.run["result"])


@pytest.mark.parametrize("name", FLOWS)
async def test_every_voter(walks: Mapping[str, Walked], name: str) -> None:
    flow, streams = FLOWS[name], walks[name].streams
    assert list(streams) == list(range(len(flow["voters"])))
    for index, sequence in enumerate(flow["voters"]):
        assert_walked({"expect": SEQUENCES[sequence]}, lines_of(streams[index]))


@pytest.mark.parametrize("name", FLOWS)
async def test_a_voter_lies_between_its_start_and_its_end(walks: Mapping[str, Walked], name: str) -> None:
    walked = walks[name]
    assert [event["seq"] for event in walked.events] == list(range(1, walked.run["last_seq"] + 1))
    for index, stream in walked.streams.items():
        started, *ended = (
            event
            for event in walked.events
            if event["stream_id"] is None and event["meta"].get("index") == index
            if event["type"] != "CONSENSUS_RESOLUTION"
        )
        assert started["seq"] < stream[0]["seq"]
        assert stream[-1]["seq"] < ended[0]["seq"]
        assert [event["seq"] - ended[0]["seq"] for event in ended] == list(range(len(ended)))


def test_every_strategy_and_every_conflict_rule_has_a_flow() -> None:
    started = [flow["expect"][0][1] for flow in FLOWS.values()]
    assert {meta["strategy"] for meta in started} == {"unanimous", "majority", "weighted", "best"}
    assert {meta["conflict"] for meta in started} == {"vote", "merge", "best", "fail"}
