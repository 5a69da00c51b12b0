"""Answers that break off and are gone on with, over the wire; among them failures from the field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import cases, chat_wire
from tests.support.chat_wire import DONE, delta
from tests.support.heard import Heard, hear, served
from tests.support.http_tools import gives
from tests.support.model_server import Attempt, ModelServer
from tests.support.service import Service
from tests.support.tools import CALLS

pytestmark = pytest.mark.anyio

CASES = cases.load("8-resume-fallback")
RETRY = {"attempts": 2, "max_retries": 2, "base_delay_ms": 0}
GOES_ON: dict[str, Any] = {"retry": RETRY, "continue_from_last_good_token": {"checkpoint_interval": 1}}


def broken(*pieces: str) -> Attempt:
    """An answer that is cut off after some text."""
    return Attempt([delta({"content": piece}) for piece in pieces], then="reset")


def whole(*pieces: str) -> Attempt:
    """A complete answer."""
    return Attempt(chat_wire.text(*pieces))


def messages_of(server: ModelServer, model: str) -> list[list[dict[str, Any]]]:
    """What each request to a model held."""
    return [request.body["messages"] for request in server.requests if request.model == model]


async def resumed(
    service: Service, server: ModelServer, *attempts: Attempt, lifecycle: Any = GOES_ON, **body: Any
) -> tuple[Heard, list[list[dict[str, Any]]]]:
    """What a client hears, and what the server was asked."""
    model = await served(service, server, attempts)
    heard = await hear(service, model, lifecycle=lifecycle, **body)
    return heard, messages_of(server, model)


async def test_without_continuation_the_second_answer_replaces_the_first(
    service: Service, model_server: ModelServer
) -> None:
    case = CASES["R01"]
    heard, asked = await resumed(service, model_server, *cases.attempts(case), lifecycle={"retry": RETRY})
    assert heard.run["result"] == heard.text == case["expected"]["text"]
    assert [event["attempt"] for event in heard.events if event["type"] == "TOKEN"] == [1, 2]
    first, second = (at for at, kind in enumerate(heard.types) if kind == "TOKEN")
    between = heard.events[first:second]
    assert "RETRY_ATTEMPT" in [event["type"] for event in between]
    assert [e["meta"]["contentOffset"] for e in between if "contentOffset" in e["meta"]] == [0]
    assert asked[0] == asked[1]


async def test_a_model_that_starts_afresh_replaces_the_checkpoint(
    service: Service, model_server: ModelServer
) -> None:
    case = CASES["R03"]
    checkpoint = case["input"]["checkpoint"]
    heard, asked = await resumed(service, model_server, broken(checkpoint), *cases.attempts(case))
    assert heard.run["result"] == heard.text == case["expected"]["text"]
    assert asked[1][-2] == {"role": "assistant", "content": checkpoint}
    assert asked[1][-1]["role"] == "user"


async def test_a_model_that_announces_the_rest_is_asked_afresh(
    service: Service, model_server: ModelServer
) -> None:
    case = CASES["R03"]
    checkpoint, text = case["input"]["checkpoint"], case["expected"]["text"]
    remark = case["input"]["variant"].partition('"')[2].rstrip('"')
    heard, asked = await resumed(service, model_server, broken(checkpoint), whole(remark), whole(text))
    assert heard.run["result"] == heard.text == text
    assert asked[2] == asked[0]


@pytest.mark.parametrize("given", CASES["R04"]["input"]["cases"], ids=lambda given: repr(given["text"]))
async def test_a_checkpoint_may_end_inside_of_what_people_call_a_character(
    service: Service, model_server: ModelServer, given: dict[str, str]
) -> None:
    if "checkpoint" in given:
        first = broken(given["checkpoint"])
    else:
        cut = given["checkpoint_bytes_latin1"].encode("latin-1")
        first = Attempt([b'data: {"choices":[{"index":0,"delta":{"content":"' + cut], then="reset")
    heard, _ = await resumed(service, model_server, first, whole(given["continuation"]))
    assert heard.run["result"] == heard.text == given["text"]
    complete = next(event for event in heard.events if event["type"] == "COMPLETE")
    assert complete["meta"]["contentLength"] == len(given["text"])


async def test_half_of_a_tool_call_is_not_gone_on_with(service: Service, model_server: ModelServer) -> None:
    first, second = cases.attempts(CASES["R06"])
    fallback = await served(service, model_server, [second])
    lifecycle = {**GOES_ON, "retry": None, "fallbacks": [fallback]}
    async with ModelServer({"": [gives(b'"booked"')]}) as rooms:
        spec = {"kind": "http", "parameters": {"type": "object"}, "http": {"url": rooms.base_url}}
        assert (await service.http.put("/v1/tools/book", json=spec)).status_code == 201
        heard, asked = await resumed(service, model_server, first, lifecycle=lifecycle, actions=True)
        assert [request.body["arguments"] for request in rooms.requests] == [{"room": "A", "nights": 2}]
        assert (await service.http.delete("/v1/tools/book")).status_code == 204
    assert heard.calls == [("call_f", "book", {"room": "A", "nights": 2})]
    assert messages_of(model_server, fallback) == asked
    fired = [c for event in heard.events for c in event["callbacks"] if c["name"] == "on_tool_call"]
    assert len(fired) == heard.types.count("TOOL_REQUESTED") == 1
    assert "CONTINUATION_START" not in heard.types


async def test_the_usage_of_every_attempt_counts(service: Service, model_server: ModelServer) -> None:
    def used(text: str, output: int) -> list[bytes]:
        counts = {"prompt_tokens": 100, "completion_tokens": output}
        return [delta({"content": text}), chat_wire.event({"choices": [], "usage": counts})]

    first, second = (
        Attempt(used("One ", 40), then="reset"),
        Attempt([*used("two", 60), delta({}, "stop"), DONE]),
    )
    heard, _ = await resumed(service, model_server, first, second)
    assert heard.run["result"] == "One two"
    usage = heard.run["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["reported"]) == (200, 100, True)


async def test_a_cut_answer_is_not_asked_for_again_with_the_same_limit(
    service: Service, model_server: ModelServer
) -> None:
    cut = Attempt([delta({"content": '{"a": '}), delta({}, "length"), DONE])
    heard, asked = await resumed(
        service, model_server, cut, response_format={"type": "object"}, handle_validation="return_none"
    )
    assert len(asked) == 1
    assert heard.run["validation"]["errors"][0].startswith("OUTPUT_TRUNCATED")


async def test_a_rule_sees_what_is_written_over_several_chunks(
    service: Service, model_server: ModelServer
) -> None:
    (first,) = cases.attempts(CASES["R14"])
    pattern = {"name": "custom_pattern", "options": {"patterns": [r"sk-EXAMPLE-\d+"]}}
    lifecycle = {**GOES_ON, "guardrails": [pattern], "check_intervals": {"guardrails": 1}}
    heard, asked = await resumed(
        service, model_server, first, whole("none of your business"), lifecycle=lifecycle
    )
    assert heard.run["status"] == "completed"
    secret = "sk-EXAMPLE-0000"
    assert secret not in heard.text
    assert all(secret not in str(message) for message in heard.messages)
    assert [e["meta"]["code"] for e in heard.events if e["type"] == "ERROR"] == ["GUARDRAIL_VIOLATION"]
    saved = [e["meta"]["checkpoint"] for e in heard.events if e["type"] == "CHECKPOINT_SAVED"]
    assert all(secret not in checkpoint for checkpoint in saved)
    # What came before the secret's beginning was one chunk with it, so there was no checkpoint to go on from.
    assert asked[1] == asked[0]


async def test_reasoning_is_no_checkpoint(service: Service, model_server: ModelServer) -> None:
    case = CASES["R16"]
    heard, asked = await resumed(service, model_server, *cases.attempts(case))
    assert heard.run["result"] == heard.text == case["expected"]["text"]
    assert "CONTINUATION_START" not in heard.types
    assert asked[0] == asked[1]


async def test_a_server_that_refuses_to_go_on_is_asked_afresh(
    service: Service, model_server: ModelServer
) -> None:
    refusal = Attempt([b'{"error": {"message": "the last message must be the user\'s"}}'], status=400)
    heard, asked = await resumed(service, model_server, broken("One "), refusal, whole("One two"))
    assert heard.run["result"] == heard.text == "One two"
    assert asked[2] == asked[0]


async def test_an_endpoint_that_goes_on_by_itself_is_not_told_to(
    service: Service, model_server: ModelServer
) -> None:
    model = await served(service, model_server, [broken("One "), whole("two")], options={"prefill": True})
    heard = await hear(service, model, lifecycle=GOES_ON)
    assert heard.run["result"] == "One two"
    assert messages_of(model_server, model)[1][-1] == {"role": "assistant", "content": "One "}


async def test_the_callers_prompt_is_what_the_model_is_told(
    service: Service, model_server: ModelServer
) -> None:
    lifecycle = {"retry": RETRY, "continue_from_last_good_token": {"prompt": "weiter"}}
    _, asked = await resumed(service, model_server, broken("One "), whole("two"), lifecycle=lifecycle)
    assert asked[1][-1] == {"role": "user", "content": "weiter"}


async def test_json_is_gone_on_with_in_the_middle_of_a_string(
    service: Service, model_server: ModelServer
) -> None:
    heard, asked = await resumed(
        service,
        model_server,
        broken('{"name": "Ada Lo'),
        whole("Ada Love", 'lace"}'),
        response_format={"type": "object", "properties": {"name": {"const": "Ada Lovelace"}}},
    )
    assert heard.run["result"] == {"name": "Ada Lovelace"}
    assert len(asked) == 2


async def test_a_later_failure_repeats_no_effect_of_a_tool(
    service: Service, model_server: ModelServer
) -> None:
    asks = Attempt(
        [delta({"tool_calls": [_call("note", '{"text": "sent to kim"}')]}), delta({}, "tool_calls"), DONE]
    )
    first = await served(service, model_server, [asks])
    second = await served(service, model_server, [broken(), broken("Your "), whole("Your mail is sent.")])
    branch = await service.branch(chat_model=first)
    sent = await service.operate(branch, actions=True, tools=["note"])
    told = await service.operate(branch, chat_model=second, lifecycle={"retry": RETRY})
    assert (sent["status"], told["status"], told["attempts"]) == ("completed", "completed", 3)
    assert told["result"] == "Your mail is sent."
    assert CALLS.count("sent to kim") == 1
    calls = (await service.get(f"/v1/function-calls?branch_id={branch}"))["data"]
    assert [(call["run_id"], call["attempt"], call["status"]) for call in calls] == [
        (sent["id"], 1, "completed")
    ]


PING = b": ping\n\n"
LIMITS = {"initial_token_ms": 300, "inter_token_ms": 300}


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def _arguments(piece: str) -> bytes:
    return delta({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})


@pytest.mark.parametrize(
    ("chunks", "triggered"),
    [
        ([*[PING, 0.1] * 10, *chat_wire.text("late")], []),
        ([delta({"content": "one"}), *[PING, 0.1] * 10, *chat_wire.text(" two")], []),
        ([delta({"content": "one"}), 30.0], ["inter"]),
        (
            [
                delta({"tool_calls": [_call("nothing", "{")]}),
                *[_arguments(" "), 0.1] * 10,
                _arguments("}"),
                delta({}, "tool_calls"),
                DONE,
            ],
            [],
        ),
    ],
    ids=["pings, then the answer", "pings in the answer", "silence", "a tool call that takes long"],
)
async def test_only_silence_is_a_stall(
    service: Service, model_server: ModelServer, chunks: list[bytes | float], triggered: list[str]
) -> None:
    lifecycle = {"timeout": LIMITS, "retry": {"attempts": 1, "max_retries": 1, "base_delay_ms": 0}}
    heard, asked = await resumed(service, model_server, Attempt(chunks), whole("again"), lifecycle=lifecycle)
    found = [e["meta"]["timeoutType"] for e in heard.events if e["type"] == "TIMEOUT_TRIGGERED"]
    assert found == triggered
    assert len(asked) == 1 + len(triggered)
    assert heard.run["status"] == "completed"


@pytest.mark.parametrize(
    ("before", "triggered"),
    [([], "initial"), ([delta({"content": "one"})], "inter")],
    ids=["at first", "later"],
)
async def test_pings_alone_do_not_go_on_for_ever(
    service: Service, model_server: ModelServer, before: list[bytes | float], triggered: str
) -> None:
    lifecycle = {
        "timeout": {**LIMITS, "alive_ms": 600},
        "retry": {"attempts": 1, "max_retries": 1, "base_delay_ms": 0},
    }
    pings: list[bytes | float] = [PING, 0.1]
    heard, asked = await resumed(
        service, model_server, Attempt([*before, *pings * 600]), whole("again"), lifecycle=lifecycle
    )
    found = [e["meta"]["timeoutType"] for e in heard.events if e["type"] == "TIMEOUT_TRIGGERED"]
    assert (found, len(asked), heard.run["result"]) == ([triggered], 2, "again")
