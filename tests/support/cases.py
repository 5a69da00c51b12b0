"""Reconstructed failures from the field, as attempts of a model server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.conftest import DATA
from tests.support import chat_wire
from tests.support.model_server import Attempt, Then

_THEN: dict[str, Then] = {"close": "close", "reset": "reset", "hold_open_120s": "hang"}


def load(kind: str, file: str = "cases.jsonl") -> dict[str, dict[str, Any]]:
    """The cases of one kind, such as `1-provider-stream`, by id."""
    # By line feeds only: some cases hold other characters that Python takes for line ends.
    lines = (DATA / file).read_text("utf-8").strip().split("\n")
    return {case["id"]: case for case in map(json.loads, lines) if case["kind"] == kind}


def attempts(case: Mapping[str, Any]) -> Sequence[Attempt]:
    """What the server of a case does, request by request."""
    given = case["input"]
    return [_attempt({**given, **one}) for one in given.get("attempts", [given])]


def _attempt(given: Mapping[str, Any]) -> Attempt:
    if "chunks_py" in given:
        names = {"ch": _choice, "D": chat_wire.event, "DONE": chat_wire.DONE, "__builtins__": {}}
        chunks: list[bytes] = eval(given["chunks_py"], names)
    else:
        encoding = str(given.get("chunk_encoding", "utf-8")).partition(" ")[0]
        chunks = [chunk.encode(encoding) for chunk in given["chunks"]]
    return Attempt(
        chunks,
        status=given.get("http_status", 200),
        content_type=given.get("content_type", "text/event-stream"),
        then=_THEN[given.get("then", "close")],
        write_size=given.get("write_size"),
    )


def _choice(delta: Any, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
