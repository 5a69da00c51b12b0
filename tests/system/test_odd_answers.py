"""Answers that no description of the wire foresees end in an answer or an error, never in a bug."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.chat_wire import DONE, delta, event
from tests.support.heard import hear, served
from tests.support.model_server import Attempt, ModelServer
from tests.support.service import Service

pytestmark = pytest.mark.anyio

STOP = [delta({}, "stop"), DONE]
TEXT = delta({"content": "text"})


def call(name: Any = "add", arguments: Any = '{"a": 1, "b": 2}', id: Any = "c", index: Any = 0) -> bytes:
    """An event with one tool call."""
    function = {"name": name, "arguments": arguments}
    return delta({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})


def raw(body: str) -> list[bytes]:
    """An event that is written as it is."""
    return [b"data: " + body.encode("utf-8", "surrogatepass") + b"\n\n"]


def content(escaped: str) -> list[bytes]:
    """An event whose content is a JSON string as it is written."""
    return raw('{"choices":[{"index":0,"delta":{"content":"' + escaped + '"}}]}')


def deep(levels: int) -> Any:
    """A value of so many lists in each other."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def used(usage: Any) -> list[bytes]:
    """A whole answer with this report."""
    return [TEXT, delta({}, "stop"), event({"choices": [], "usage": usage}), DONE]


ODD: dict[str, list[bytes]] = {
    "NUL in the text": [*content(r"a\u0000b"), *STOP],
    "NUL alone": [*content(r"\u0000"), *STOP],
    "NUL unescaped": [*content("a\x00b"), *STOP],
    "half a character": [*content(r"a\ud83d"), *STOP],
    "halves in the wrong order": [*content(r"\udd94\ud83e"), *STOP],
    "halves in two events": [*content(r"a\ud83e"), *content(r"\udda6b"), *STOP],
    "bytes that are no UTF-8": [
        b'data: {"choices":[{"index":0,"delta":{"content":"a\xff\xfeb"}}]}\n\n',
        *STOP,
    ],
    "line separators": [delta({"content": "a\u2028b\u2029c\x85d"}), *STOP],
    "noncharacters": [delta({"content": "\ufffe\uffff\U0010ffff\ufeff"}), *STOP],
    "escapes and bells": [delta({"content": "\x1b[31m\x07\x08\x7f"}), *STOP],
    "an answer like our own wire": [delta({"content": "id: 1\nevent: TOKEN\ndata: {}\n\n"}), *STOP],
    "NUL in the reasoning": [delta({"reasoning": "x\0y"}), TEXT, *STOP],
    "NUL in the refusal": [delta({"refusal": "x\0y"}), *STOP],
    "NUL in the reason to stop": [TEXT, delta({}, "st\0p"), DONE],
    "a reason to stop without end": [TEXT, delta({}, "x" * 100_000), DONE],
    "a reason to stop that is no word": [TEXT, delta({}, 7), DONE],
    "a reason to stop that is an object": [TEXT, delta({}, {"type": "stop"}), DONE],
    "an id of NULs": [call(id="\0\0"), *STOP],
    "an id without end": [call(id="c" * 100_000), *STOP],
    "an id that is a number": [call(id=7), *STOP],
    "NUL in a name": [call("a\0dd"), *STOP],
    "a name without end": [call("add" * 100_000), *STOP],
    "a name with a path": [call("../../add"), *STOP],
    "NUL in the arguments": [call("echo", '{"value": "\\u0000"}'), *STOP],
    "NUL in a key of the arguments": [call("echo", '{"value\\u0000": 1}'), *STOP],
    "half a character in the arguments": [call("echo", '{"value": "\\ud83d"}'), *STOP],
    "infinity in the arguments": [call("echo", '{"value": 1e999}'), *STOP],
    "a long integer in the arguments": [call("echo", '{"value": ' + "9" * 400 + "}"), *STOP],
    "an endless integer in the arguments": [call("echo", '{"value": ' + "9" * 10_000 + "}"), *STOP],
    "deep arguments": [call("echo", '{"value": ' + "[" * 90 + "]" * 90 + "}"), *STOP],
    "too deep arguments": [call("echo", '{"value": ' + "[" * 5_000 + "]" * 5_000 + "}"), *STOP],
    "deep objects": [*raw('{"choices":' + "[" * 50_000 + "]" * 50_000 + "}"), *STOP],
    "two keys alike": [call("echo", '{"value": 1, "value": 2}'), *STOP],
    "an index below zero": [call(index=-1), *STOP],
    "an index beyond all": [call(index=10**30), *STOP],
    "two hundred calls": [*(call(id=f"c{n}", index=n) for n in range(200)), *STOP],
    "usage beyond all": used({"prompt_tokens": 10**30, "completion_tokens": 1}),
    "usage below zero": used({"prompt_tokens": -5, "completion_tokens": 1}),
    "usage of other types": used({"prompt_tokens": "9", "completion_tokens": 1.5}),
    "usage that is a list": used([1, 2]),
    "NUL in an error": [
        TEXT,
        event({"error": {"message": "a\0b", "type": "t\0", "code": "c\0", "k\0": ["\0"]}}),
    ],
    "an endless error": [TEXT, event({"error": {"message": "m" * 500_000, "rest": "r" * 500_000}})],
    "an error of every type": [TEXT, event({"error": [[], {}, 7, None]})],
    "a status that is none": [TEXT, event({"error": {"message": "m", "code": 10**30, "status": -1}})],
    "choices of other types": [event({"choices": {"0": 1}}), event({"choices": [None, 7, []]}), TEXT, *STOP],
    "a delta of other types": [delta([1]), delta("x"), delta(7), TEXT, *STOP],
    "content of other types": [delta({"content": 7}), delta({"content": {"text": "x"}}), TEXT, *STOP],
    "twenty thousand empty events": [*(delta({"content": ""}) for _ in range(20_000)), TEXT, *STOP],
    "one event of blanks": [b"data:" + b" " * 100_000 + b"\n\n", TEXT, *STOP],
    "nothing but the end mark": [DONE],
    "the end mark twice, and more": [TEXT, *STOP, DONE, TEXT, b"data: {oops\n\n"],
}

CODES = {
    None,
    "INVALID_TOOL_ARGUMENTS",
    "MODEL_REFUSAL",
    "PROVIDER_ERROR",
    "TOO_MANY_ACTIONS",
    "ZERO_OUTPUT",
}
"""What may come of it; never INTERNAL or RECORD_REJECTED."""


@pytest.mark.parametrize("name", ODD)
async def test_odd(
    service: Service, model_server: ModelServer, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    got = await hear(service, await served(service, model_server, [Attempt(ODD[name])]), actions=True)
    assert got.code in CODES
    everything = json.dumps([got.run, got.events, got.messages])
    assert not re.search(r"(?<!\\)(?:\\\\)*\\u0000", everything)
    if got.answer is not None:
        assert got.answer["text"] == got.text
        assert [(c["id"], c["name"], c["arguments"]) for c in got.answer["tool_calls"]] == got.calls
    else:
        assert got.run["partial_text"] == (got.text or None)
    good = await service.scripted("good", [{"text": "fine"}, {"end": "stop"}])
    after = await service.operate(got.run["branch_id"], chat_model=good, actions=True)
    assert after["result"] == "fine"
    assert "Traceback" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("NUL in the text", "a\ufffdb"),
        ("half a character", "a"),
        ("halves in two events", "a🦦b"),
        ("bytes that are no UTF-8", "a\ufffd\ufffdb"),
        ("line separators", "a\u2028b\u2029c\x85d"),
        ("an answer like our own wire", "id: 1\nevent: TOKEN\ndata: {}\n\n"),
        ("the end mark twice, and more", "text"),
    ],
)
async def test_odd_text(service: Service, model_server: ModelServer, name: str, text: str) -> None:
    got = await hear(service, await served(service, model_server, [Attempt(ODD[name])]))
    assert got.run["result"] == got.text == text


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("NUL in the arguments", {"value": "\ufffd"}),
        ("half a character in the arguments", {"value": "\ufffd"}),
        ("a long integer in the arguments", {"value": int("9" * 400)}),
    ],
)
async def test_odd_arguments(
    service: Service, model_server: ModelServer, name: str, arguments: dict[str, Any]
) -> None:
    """What is announced, given to the tool, recorded and later told to the model is the same."""
    model = await served(service, model_server, [Attempt(ODD[name]), Attempt([TEXT, *STOP])])
    got = await hear(service, model, actions=True)
    assert [call for _, _, call in got.calls] == [arguments]
    (response,) = got.run["result"]["action_responses"]
    assert (response["arguments"], response["output"]) == (arguments, arguments["value"])
    (recorded,) = (await service.get(f"/v1/function-calls?run_id={got.run['id']}"))["data"]
    assert recorded["arguments"] == arguments
    assert (await service.operate(got.run["branch_id"], actions=True))["result"] == "text"
    replayed = model_server.requests[-1].body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(replayed) == arguments


@pytest.mark.parametrize(
    "name",
    [
        "infinity in the arguments",
        "two keys alike",
        "too deep arguments",
        "an endless integer in the arguments",
    ],
)
async def test_arguments_that_no_tool_may_see(service: Service, model_server: ModelServer, name: str) -> None:
    got = await hear(service, await served(service, model_server, [Attempt(ODD[name])]), actions=True)
    assert got.code == "INVALID_TOOL_ARGUMENTS"
    assert (got.calls, got.run["function_calls"], got.messages) == ([], [], [])


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("usage beyond all", (1, 1, True, True)),
        ("usage below zero", (1, 1, True, True)),
        ("usage of other types", (1, 1, False, True)),
        ("usage that is a list", (1, 1, False, True)),
    ],
)
async def test_odd_usage(service: Service, model_server: ModelServer, name: str, usage: Any) -> None:
    got = await hear(service, await served(service, model_server, [Attempt(ODD[name])]))
    assert (got.run["result"], tuple(got.run["usage"].values())[:4]) == ("text", usage)
