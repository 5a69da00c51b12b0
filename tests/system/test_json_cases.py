"""Known slips of models that were asked for JSON: what becomes a value, and what is never taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import cases, chat_wire
from tests.support.heard import ONCE, Heard, heard, served
from tests.support.http_tools import gives
from tests.support.model_server import Attempt, ModelServer
from tests.support.service import Service

pytestmark = pytest.mark.anyio

CASES = cases.load("3-json-output")
CODES = {"EMPTY_OUTPUT", "OUTPUT_TRUNCATED", "PARSE", "SCHEMA_VALIDATION"}


async def operated(
    service: Service,
    server: ModelServer,
    id: str,
    text: str | None = None,
    *,
    finish: Any = ...,
    options: Any = None,
    **body: Any,
) -> Heard:
    """The answer of a case, or another one to its schema and with its reason to stop."""
    given = CASES[id]["input"]
    said = chat_wire.delta({"content": given["model_text"] if text is None else text})
    reason = given["finish_reason"] if finish is ... else finish
    end = [] if reason is None else [chat_wire.delta({}, reason)]
    model = await served(service, server, [Attempt([said, *end, chat_wire.DONE])], options=options or {})
    asked = {"response_format": given["response_format"]["schema"], "handle_validation": "raise"}
    branch = await service.branch(chat_model=model)
    run = await service.started(branch, **{**asked, "lifecycle": ONCE, **body})
    return await heard(service, await service.ended(run["id"]))


def code(of: Heard) -> str:
    """Why a run has no value: nothing that could be taken for one is left of it."""
    assert (of.run["status"], of.code, of.run["result"]) == ("failed", "RESULT_MISMATCH", None)
    assert of.run["validation"]["ok"] is False
    return str(of.detail["code"])


def value(of: Heard) -> Any:
    """The value, and everywhere the same is told of how it came about."""
    assert (of.run["status"], of.run["validation"]["ok"]) == ("completed", True)
    ends = [e["meta"] for e in of.events if e["type"] == "AUTO_CORRECT_END"]
    assert of.run["validation"]["corrections"] == [name for end in ends for name in end["corrections"]]
    return of.run["result"]


# What every case says of itself


@pytest.mark.parametrize("id", CASES)
async def test_known_slips_of_models(service: Service, model_server: ModelServer, id: str) -> None:
    expected = CASES[id]["expected"]
    found = await operated(service, model_server, id)
    if expected["outcome"] == "completed":
        assert value(found) == expected["value"]
        assert found.run["validation"]["corrections"] or not expected.get("auto_corrected")
    else:
        # Where a value or a failure is allowed nothing is guessed.
        allowed = set(expected["error_code"].split("|")) if "error_code" in expected else CODES
        assert code(found) in allowed
    asked = [request for request in model_server.requests if request.model == found.run["model"]]
    assert len(asked) == 1, "nothing is asked again in vain"


@pytest.mark.parametrize("id", [id for id in CASES if "value" not in CASES[id]["expected"]])
async def test_without_a_value_a_run_may_still_complete_and_says_so(
    service: Service, model_server: ModelServer, id: str
) -> None:
    found = await operated(service, model_server, id, handle_validation="return_none")
    assert (found.run["status"], found.run["result"]) == ("completed", None)
    assert found.run["validation"]["ok"] is False


# What single cases say besides


@pytest.mark.parametrize("finish", ["length", None])
@pytest.mark.parametrize("id", ["J09", "J11"])
async def test_j09_j11_what_was_cut_off_is_never_closed(
    service: Service, model_server: ModelServer, id: str, finish: str | None
) -> None:
    found = await operated(service, model_server, id, finish=finish)
    assert code(found) == "OUTPUT_TRUNCATED"
    assert found.run["partial_text"] == CASES[id]["input"]["model_text"]
    returned = await operated(service, model_server, id, finish=finish, handle_validation="return_value")
    assert returned.run["result"] == CASES[id]["input"]["model_text"], "the text, and no value"


async def test_j13_the_same_twice_is_said_once(service: Service, model_server: ModelServer) -> None:
    twice = '{"title": "Draft", "score": 1}\n{"score": 1, "title": "Draft"}'
    found = await operated(service, model_server, "J13", twice)
    assert value(found) == {"title": "Draft", "score": 1}
    assert "repeated" in found.run["validation"]["corrections"]
    different = await operated(service, model_server, "J13")
    assert "several different" in different.run["error"]["message"]


async def test_j14_halves_of_characters_are_replaced_and_that_is_told(
    service: Service, model_server: ModelServer
) -> None:
    found = await operated(service, model_server, "J14")
    assert found.run["validation"]["corrections"] == ["unstorable_characters"]
    whole = await operated(service, model_server, "J14", '{"title": "\\ud83d\\ude00", "score": 1}')
    assert (value(whole), whole.run["validation"]["corrections"]) == ({"title": "😀", "score": 1}, [])


@pytest.mark.parametrize("tags", [False, True])
async def test_j18_a_call_in_tags_is_neither_a_value_nor_carried_out(
    service: Service, model_server: ModelServer, tags: bool
) -> None:
    async with ModelServer() as tool:
        tool.scripts[""] = [gives(b'"found"')]
        spec = {"kind": "http", "parameters": {"type": "object"}, "http": {"url": tool.base_url}}
        assert (await service.http.put("/v1/tools/lookup", json=spec)).status_code < 300
        asked: dict[str, Any] = {"options": {"inline_tool_call_tags": tags}, "actions": True}
        alone = await operated(service, model_server, "J18", **asked)
        # With the profile the call is none of the text, so there is no text left.
        assert code(alone) == ("EMPTY_OUTPUT" if tags else "SCHEMA_VALIDATION")
        text = CASES["J18"]["input"]["model_text"] + '\n{"title": "Found", "score": 2}'
        beside = await operated(service, model_server, "J18", text, **asked)
        assert {"title": "Found", "score": 2}.items() <= value(beside).items()
        # Where a format is asked for, tools are asked for inside of the value and nowhere else.
        assert tool.requests == alone.run["function_calls"] == beside.run["function_calls"] == []


async def test_j19_every_fault_is_told_at_once_and_nothing_is_changed(
    service: Service, model_server: ModelServer
) -> None:
    found = await operated(service, model_server, "J19")
    told = found.run["validation"]["errors"]
    assert [error.partition(": ")[0] for error in told] == ["/score", "/level", "(answer)"]
    assert "'extra'" in told[2]
    assert all(error in found.run["error"]["message"] for error in told)
    kept = await operated(service, model_server, "J19", handle_validation="return_value")
    assert kept.run["result"] == json.loads(CASES["J19"]["input"]["model_text"])
    assert kept.run["validation"]["corrections"] == []


@pytest.mark.parametrize(
    "text",
    [
        '{"result": {"title": "Elm", "score": 2}}',
        '{"properties": {"title": "Elm", "score": 2}}',
        '{"type": "object", "properties": {"title": {"type": "string"}}}',
    ],
)
async def test_j21_nothing_is_taken_out_of_what_wraps_it(
    service: Service, model_server: ModelServer, text: str
) -> None:
    assert code(await operated(service, model_server, "J21", text)) == "SCHEMA_VALIDATION"


@pytest.mark.parametrize("text", ["", "   ", "null"])
async def test_j23_no_answer_is_one_failure_however_it_is_written(
    service: Service, model_server: ModelServer, text: str
) -> None:
    found = await operated(
        service, model_server, "J23", text, lifecycle={**ONCE, "detect_zero_tokens": False}
    )
    assert code(found) == "EMPTY_OUTPUT"


async def test_j24_typographic_quotes_inside_of_a_text_stay(
    service: Service, model_server: ModelServer
) -> None:
    found = await operated(service, model_server, "J24", '{"title": "“quoted”", "score": 1}')
    assert (value(found), found.run["validation"]["corrections"]) == ({"title": "“quoted”", "score": 1}, [])
