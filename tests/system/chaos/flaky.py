"""The model and the tools of the world: what they should say, and how they fail to, drawn from a seed."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.support import chat_wire
from tests.support.chat_wire import DONE, delta
from tests.support.http_tools import SILENCE, gives
from tests.support.model_server import Attempt, Request, Then

TASK = re.compile(r"task-[0-9a-f]{12}")
"""Stands in every instruction and in the arguments of every call: whose request a server sees."""
CHARGE, LOOK = "charge", "look"
"""Tools over HTTP: one that must not be called twice, and one that may."""
LATER, ECHO = "later", "echo"
"""Tools in the processes themselves; people may be asked about the second."""
ERRAND = "errand"
"""A tool that clients carry out."""
CALLS = re.compile(r"calls: (\S+)")
"""How an instruction says which tools the model is to ask for, separated by commas."""
PATIENCE_MS = 2_000
"""How long models may be silent."""


def answer(task: str) -> list[str]:
    """What the model says to a task, in pieces; no two of them are alike."""
    draw = random.Random(task)
    return [f"{task} begins", *(f", {n}:{draw.randrange(16**6):06x}" for n in range(draw.randint(3, 30)))]


_THEN: Mapping[str, Then] = {"cut": "reset", "unfinished": "close", "stalled": "hang"}


class Flaky:
    """Counts what it was asked of each task, so that a seed decides how each request fares."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.fared: Counter[str] = Counter()
        """How many requests fared in which way."""
        self._asked: Counter[str] = Counter()

    def _way(self, task: str, ways: Mapping[str, int]) -> tuple[str, random.Random]:
        self._asked[task] += 1
        draw = random.Random(f"{self.seed} {task} {self._asked[task]}")
        (way,) = draw.choices(list(ways), list(ways.values()))
        self.fared[way] += 1
        return way, draw


class FlakyModel(Flaky):
    """Answers chat completions."""

    ways: Mapping[str, int] = {
        **{"well": 50, "slowly": 22, "cut": 8, "unfinished": 4, "429": 4, "500": 3, "503": 3},
        **{"refused": 2, "silent": 2, "stalled": 2},
    }

    def __call__(self, request: Request) -> Attempt:
        """The answer to a request."""
        task, said = asked(request.body["messages"])
        way, draw = self._way(task, self.ways)
        match way:
            case "429" | "500" | "503":
                body = json.dumps({"error": {"message": "not now", "type": "server_error"}}).encode()
                return Attempt([body], int(way), "application/json", framing="length")
            case "refused":
                return Attempt(head=b"", then="reset")
            case "silent":
                return SILENCE
        chunks = _chunks(request, task, said)
        if way == "well":
            return Attempt([*chunks, DONE], framing="chunked", then="keep")
        if way == "slowly":
            paced = [part for chunk in chunks for part in (draw.uniform(0.01, 0.2), chunk)]
            return Attempt([*paced, DONE], framing="chunked", then="keep")
        some = chunks[: draw.randrange(len(chunks))]
        return Attempt([*some, 0.05], then=_THEN[way])


def asked(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """Whose answer is wanted, and what of it has been said in an attempt before."""
    last = TASK.search(text_of(messages[-1]))
    if last is not None:
        return last[0], ""
    # A request to go on: the text so far, and after it the words that ask for the rest.
    tasks = tasks_in(messages)
    return tasks[-1], text_of(messages[-2])


def tasks_in(messages: list[dict[str, Any]]) -> list[str]:
    """The tasks that users gave, in order."""
    return [found[0] for m in messages if m["role"] == "user" and (found := TASK.search(text_of(m)))]


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message of a request."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _chunks(request: Request, task: str, said: str) -> list[bytes]:
    instruction = next(text_of(m) for m in reversed(request.body["messages"]) if task in text_of(m))
    chunks = chat_wire.text(*_rest(answer(task), said))[:-2]
    wanted = CALLS.search(instruction)
    if wanted is None or said:
        return [*chunks, delta({}, "stop")]
    for index, name in enumerate(wanted[1].split(",")):
        function = {"name": name, "arguments": json.dumps({"task": task, "n": index})}
        call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        chunks.append(delta({"tool_calls": [call]}))
    return [*chunks, delta({}, "tool_calls")]


def _rest(pieces: list[str], said: str) -> list[str]:
    """What follows the text so far; the whole, if that is another text."""
    whole = "".join(pieces)
    return [whole[len(said) :]] if said and whole.startswith(said) else pieces


class FlakyTools(Flaky):
    """Answers posts of tools; each answer holds a number of its own."""

    ways: Mapping[str, int] = {"well": 60, "slowly": 20, "error": 6, "busy": 6, "lost": 4, "late": 4}

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.given: dict[int, str] = {}
        """Which call was given the answer of a number."""

    def give(self, call_id: str) -> int:
        """A number that no other call is given."""
        number = len(self.given)
        self.given[number] = call_id
        return number

    def __call__(self, request: Request) -> Attempt:
        """The answer to a post."""
        way, draw = self._way(request.body["arguments"]["task"], self.ways)
        done = gives(json.dumps({"number": self.give(request.body["call_id"])}).encode(), then="keep")
        match way:
            case "slowly" | "late":
                wait_s = draw.uniform(0.1, 1.0) if way == "slowly" else 1.5 * PATIENCE_MS / 1000
                return Attempt(done.chunks, 200, done.content_type, framing="length", open_wait_s=wait_s)
            case "error":
                return gives(b'{"error": "no such thing"}', 500)
            case "busy":
                return gives(b"", 503)
            case "lost":
                return Attempt(head=b"", chunks=[0.01], then="reset")
        return done
