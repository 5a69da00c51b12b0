"""A model server that costs next to nothing: streamed chat completions whose frames were made in advance.

The model's name says how it behaves: `fake-t<tokens>`, then in any order `-f<ms before the first token>`,
`-d<ms before each write>`, `-b<tokens per write>` and `-c<tool calls at the end>`.

Run as a program it serves a free port of the loopback, prints its address, and ends when its standard input
does: so it ends with whoever started it.
"""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import httptools
import orjson
import uvloop

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_REFUSAL: Final = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
_ARGUMENTS: Final = '{"a": 1, "b": 2}'


@dataclass(frozen=True, slots=True)
class Manner:
    """What a model's name asks for."""

    tokens: int = 16
    first_s: float = 0.0
    each_s: float = 0.0
    per_write: int = 1
    calls: int = 0

    @classmethod
    def of(cls, model: str) -> Manner:
        """Read a name; what it does not say is 16 tokens at full speed."""
        said = {letter: int(number) for letter, number in re.findall(r"-([tfdbc])(\d+)", model)}
        return cls(
            tokens=said.get("t", 16),
            first_s=said.get("f", 0) / 1000,
            each_s=said.get("d", 0) / 1000,
            per_write=max(1, said.get("b", 1)),
            calls=said.get("c", 0),
        )


@dataclass(frozen=True, slots=True)
class Script:
    """One answer as the bytes of its writes."""

    manner: Manner
    opening: bytes
    writes: list[bytes]
    closing: bytes


@lru_cache(maxsize=256)
def script_for(model: str, tool: str | None) -> Script:
    """The answer of a model; `tool` is the function that its calls name, None where none was offered."""
    manner = Manner.of(model)
    calls = manner.calls if tool is not None else 0
    tokens = [token_event(model, n) for n in range(manner.tokens)]
    ending = [_choice(model, {"tool_calls": [_call(index, tool)]}) for index in range(calls)]
    ending.append(_choice(model, {}, "tool_calls" if calls else "stop"))
    usage = {"prompt_tokens": 10, "completion_tokens": manner.tokens, "total_tokens": manner.tokens + 10}
    ending.append(_event(model, choices=[], usage=usage))
    ending.append(b"data: [DONE]\n\n")
    size = manner.per_write
    return Script(
        manner,
        opening=_HEAD + _chunk(_choice(model, {"role": "assistant", "content": ""})),
        writes=[b"".join(map(_chunk, tokens[at : at + size])) for at in range(0, len(tokens), size)],
        closing=b"".join(map(_chunk, ending)) + b"0\r\n\r\n",
    )


def token_event(model: str, number: int) -> bytes:
    """The server-sent event of one token."""
    return _choice(model, {"content": f"tok{number} "})


def _call(index: int, tool: str | None) -> dict[str, Any]:
    function = {"name": tool, "arguments": _ARGUMENTS}
    return {"index": index, "id": f"call_{index}", "type": "function", "function": function}


def _choice(model: str, delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _event(model, choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


def _event(model: str, **members: Any) -> bytes:
    common = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 1, "model": model}
    return b"data: " + orjson.dumps({**common, **members}) + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Conversation(asyncio.Protocol):
    """One connection: requests one after another, each answered as its model's name asks."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._transport: asyncio.Transport
        self._next: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next is not None:
            self._next.cancel()

    def on_body(self, piece: bytes) -> None:
        self._body.append(piece)

    def on_message_complete(self) -> None:
        request = orjson.loads(b"".join(self._body) or b"{}")
        self._body.clear()
        if not request.get("stream"):
            self._transport.write(_REFUSAL)
            return
        tools = request.get("tools") or [{}]
        script = script_for(request["model"], tools[0].get("function", {}).get("name"))
        self._transport.write(script.opening)
        self._schedule(script, 0, self._loop.time() + script.manner.first_s)

    def _schedule(self, script: Script, index: int, began: float) -> None:
        # On the schedule of the whole answer, so that a late timer does not delay the tokens after it.
        manner = script.manner
        if manner.each_s or (manner.first_s and index == 0):
            due = began + manner.each_s * (index + 1)
            self._next = self._loop.call_at(due, self._write, script, index, began)
        else:
            self._next = self._loop.call_soon(self._write, script, index, began)

    def _write(self, script: Script, index: int, began: float) -> None:
        """One write each time round the loop, so that concurrent answers take turns."""
        if index < len(script.writes):
            self._transport.write(script.writes[index])
            self._schedule(script, index + 1, began)
        else:
            self._transport.write(script.closing)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Conversation, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()
    server.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve())
