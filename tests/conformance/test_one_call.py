"""One call: what is taken, what comes back, and what is recorded of each way in which it can end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.acting import begun, call, outputs, pairs_of, refused, rows_of, types_of
from tests.support.conformance_tools import CROWDS, SAID, Crowd
from tests.support.polling import until
from tests.support.service import Service

pytestmark = pytest.mark.anyio

STRATEGIES = pytest.mark.parametrize("strategy", ["concurrent", "sequential"])
FAILURES: dict[str, tuple[dict[str, Any], str, str]] = {
    "the tool": (call("refuse", why="never"), "ValueError", "never"),
    "its preprocessor": (call("breaks_before", text="x"), "LookupError", "a processor fails"),
    "its postprocessor": (call("breaks_after", text="x"), "LookupError", "a processor fails"),
    "a wrong preprocessor": (call("turned_wrong", text="x"), "INVALID_ARGUMENTS", "/text: "),
    "no such tool": (call("unknown"), "TOOL_NOT_FOUND", "'unknown'"),
    "arguments of a wrong type": (call("add", a="x", b=1), "INVALID_ARGUMENTS", "/a: "),
    "arguments that are none": ({"function": "add", "arguments": "a=1"}, "INVALID_ARGUMENTS", "a string"),
    "a hook": (call("blocked"), "HOOK_BLOCKED", "not today"),
}


@pytest.mark.parametrize("listed", [True, False], ids=["in a list", "alone"])
async def test_a_request_gives_its_function_arguments_and_output(service: Service, listed: bool) -> None:
    branch, request = await service.branch(), call("add", a=1, b=2)
    answer = await service.http.post(
        f"/v1/branches/{branch}/act", json={"requests": [request] if listed else request}
    )
    (result,) = answer.json()["result"]
    ((asked, answered),) = await pairs_of(service, branch)
    (row,) = await rows_of(service, answer.json()["id"])
    assert result == {
        **request,
        "output": 3,
        "error": None,
        "status": "completed",
        "call_id": row["call_id"],
    }
    assert (asked["function"], asked["arguments"]) == ("add", {"a": 1, "b": 2})
    assert (answered["function"], answered["arguments"]) == ("add", {"a": 1, "b": 2})
    assert (answered["output"], answered["error"]) == (3, None)
    ends = [(message["sender"], message["recipient"]) for message in await service.messages(branch)]
    assert ends == [("user", "add"), ("add", branch)]


@pytest.mark.parametrize(
    ("requests", "pointer"),
    [
        ("add", "/requests"),
        ([3], "/requests/0"),
        ([call("add", a=1, b=2), {"function": "add"}], "/requests/1/arguments"),
        ([{"arguments": {}}], "/requests/0/function"),
    ],
)
async def test_what_is_no_request_is_refused_before_anything_happens(
    service: Service, requests: Any, pointer: str
) -> None:
    branch = await service.branch(gate={"rules": [], "default": "deny"})
    problem = await refused(service, branch, 422, requests=requests)
    assert pointer in [fault["pointer"] for fault in problem["errors"]]
    assert (await service.get(f"/v1/branches/{branch}/runs"))["data"] == []
    assert await service.messages(branch) == []


@STRATEGIES
@pytest.mark.parametrize("suppress", [True, False], ids=["suppressed", "raised"])
@pytest.mark.parametrize("cause", FAILURES)
async def test_a_failure_is_recorded_whole_whatever_caused_it(
    service: Service, cause: str, suppress: bool, strategy: str
) -> None:
    request, type, words = FAILURES[cause]
    branch = await service.branch()
    body = {"requests": [request], "strategy": strategy, "suppress_errors": suppress}
    if suppress:
        run = await service.act(branch, request, strategy=strategy)
        (result,) = run["result"]
        assert result["status"] == "failed"
        assert (result["output"], result["error"]) == (
            {"error": result["error"], **request},
            result["error"],
        )
        run_id = run["id"]
    else:
        problem = await refused(service, branch, 424, **body)
        assert problem["code"] == "tool_failed"
        assert type in problem["detail"]
        run_id = problem["run_id"]
    (row,) = await rows_of(service, run_id)
    fault = row["execution"]["error"]
    assert (row["status"], fault["error"]) == ("failed", type)
    assert words in fault["message"]
    assert (row["execution"]["response"], row["execution"]["duration"] >= 0) == (None, True)
    ((_, answered),) = await pairs_of(service, branch)
    error = f"{type}: {fault['message']}"
    assert answered["error"] == error
    assert answered["output"] == {"error": error, **request}
    types = await types_of(service, run_id)
    assert (types[0], types[-2:]) == ("TOOL_REQUESTED", ["TOOL_ERROR", "TOOL_COMPLETED"])
    assert "TOOL_RESULT" not in types


@STRATEGIES
async def test_no_result_is_a_result_and_a_failure_is_none(service: Service, strategy: str) -> None:
    branch = await service.branch()
    run = await service.act(branch, call("nothing"), call("refuse"), strategy=strategy)
    assert [(r["status"], r["error"]) for r in run["result"]] == [
        ("completed", None),
        ("failed", "ValueError: no"),
    ]
    (_, nothing), (_, failure) = await pairs_of(service, branch)
    assert (nothing["output"], nothing["error"]) == (None, None)
    assert (failure["output"], failure["error"]) == (
        {"error": "ValueError: no", "function": "refuse", "arguments": {}},
        "ValueError: no",
    )


@pytest.mark.parametrize("value", [0, "", [], {}, False, None, 0.0])
async def test_an_empty_result_is_recorded_as_any_other(service: Service, value: Any) -> None:
    branch = await service.branch()
    run = await service.act(branch, call("echo", value=value))
    ((_, answered),) = await pairs_of(service, branch)
    assert (outputs(run), answered["output"], answered["error"]) == ([value], value, None)
    (row,) = await rows_of(service, run["id"])
    assert (row["status"], row["execution"]["response"]) == ("completed", value)


@pytest.mark.parametrize(
    "request_",
    [call("add", a=1, b=2), call("later", seconds=0, value="x"), call("refuse")],
    ids=["plain function", "coroutine function", "failure"],
)
async def test_every_end_has_its_status_and_duration(service: Service, request_: dict[str, Any]) -> None:
    run = await service.act(await service.branch(), request_)
    (row,) = await rows_of(service, run["id"])
    execution = row["execution"]
    assert execution["status"] == row["status"] == run["result"][0]["status"]
    assert 0 <= execution["duration"] < 60, "in seconds"
    assert (execution["error"] is None) is (row["status"] == "completed")


async def test_a_call_is_being_processed_while_its_tool_runs(service: Service) -> None:
    crowd = CROWDS["alone"] = Crowd()
    branch = await service.branch()
    run = await begun(service, branch, requests=call("crowd", name="alone"))
    await until(lambda: crowd.now == 1)
    (row,) = await rows_of(service, run["id"])
    assert row["status"] == "processing"
    crowd.door.set()
    assert (await service.ended(run["id"]))["status"] == "completed"
    assert (await rows_of(service, run["id"]))[0]["status"] == "completed"
    assert crowd.begun == 1


@STRATEGIES
@pytest.mark.parametrize(
    ("tool", "begins"), [("forever", True), ("hangs_before", False)], ids=["tool", "preprocessor"]
)
async def test_a_cancelled_call_is_recorded_and_linked(
    service: Service, tool: str, begins: bool, strategy: str
) -> None:
    branch = await service.branch()
    request = call(tool, **({} if begins else {"text": "x"}))
    run = await begun(service, branch, requests=request, strategy=strategy)
    expected = "TOOL_START" if begins else "TOOL_REQUESTED"
    async for frame in service.stream("GET", f"/v1/runs/{run['id']}/events"):
        if frame.event == expected:
            break
    await service.http.post(f"/v1/runs/{run['id']}/cancel")
    assert (await service.ended(run["id"]))["status"] == "cancelled"
    (row,) = await rows_of(service, run["id"])
    assert (row["status"], row["execution"]["error"]["error"]) == ("cancelled", "CANCELLED")
    assert row["execution"]["duration"] >= 0
    ((_, answered),) = await pairs_of(service, branch)
    assert answered["error"].startswith("CANCELLED: ")
    assert (await types_of(service, run["id"]))[-2:] == ["TOOL_ERROR", "TOOL_COMPLETED"]


@pytest.mark.parametrize(
    "request_", [call("forever"), call("hangs_before", text="x")], ids=["tool", "preprocessor"]
)
@pytest.mark.parametrize("suppress", [True, False], ids=["suppressed", "raised"])
async def test_a_call_that_takes_too_long_is_a_recorded_failure(
    service: Service, request_: dict[str, Any], suppress: bool
) -> None:
    branch = await service.branch()
    body = {"requests": request_, "suppress_errors": suppress, "call_params": {"retry_timeout": 0.05}}
    answer = await service.http.post(f"/v1/branches/{branch}/act", json=body)
    assert answer.status_code == (200 if suppress else 424)
    run_id = answer.json()["id" if suppress else "run_id"]
    (row,) = await rows_of(service, run_id)
    assert (row["status"], row["execution"]["error"]["error"]) == ("failed", "TIMEOUT")
    ((_, answered),) = await pairs_of(service, branch)
    assert answered["error"].startswith("TIMEOUT: ")


async def test_what_has_no_json_form_is_named_and_the_rest_is_kept(service: Service) -> None:
    run = await service.act(await service.branch(), call("odd"))
    assert outputs(run) == [
        {"good": 1, "odd": "<unserializable>", "error": {"error": "ValueError", "message": "inner"}}
    ]


async def test_processors_stand_before_and_after_the_tool(service: Service) -> None:
    run = await service.act(
        await service.branch(),
        call("turned", text="abc"),
        call("measured", text="four"),
        strategy="sequential",
    )
    assert outputs(run) == ["cba", 4]
    assert SAID == ["cba", "four"]
    assert run["result"][0]["arguments"] == {"text": "abc"}, "the record is of what was asked for"


async def test_what_has_to_be_awaited_is(service: Service) -> None:
    assert outputs(await service.act(await service.branch(), call("promise"))) == ["kept"]


async def test_a_strict_tool_takes_exactly_its_arguments(service: Service) -> None:
    requests = [call("exact", text="a"), call("exact"), call("exact", text="a", more=1)]
    run = await service.act(await service.branch(), *requests)
    assert [r["status"] for r in run["result"]] == ["completed", "failed", "failed"]
    assert all(r["error"].startswith("INVALID_ARGUMENTS: ") for r in run["result"][1:])
    assert SAID == ["a"]


async def test_what_has_a_default_may_be_left_out(service: Service) -> None:
    run = await service.act(await service.branch(), call("refuse"), call("later", seconds=0))
    assert run["result"][0]["error"] == "ValueError: no"
    assert run["result"][1]["error"].startswith("INVALID_ARGUMENTS: ")
    (row, _) = await rows_of(service, run["id"])
    assert row["arguments"] == {}, "defaults are the tool's own"


@pytest.mark.parametrize("verbose", [True, False])
async def test_a_preview_is_logged_if_that_is_asked_for_and_changes_nothing(
    service: Service, verbose: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "begin" + "x" * 100
    run = await service.act(await service.branch(), call("say", text=text), verbose_action=verbose)
    assert outputs(run) == [text]
    logged = capsys.readouterr().out
    preview = str({"text": text})[:50]
    assert (preview in logged) is verbose
    assert preview + "x" not in logged
