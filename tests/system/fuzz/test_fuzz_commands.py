"""Whatever a command writes that answers as a model, and however it ends, its run ends; so does the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, note
from hypothesis import strategies as st

from tests.support import commands
from tests.support.database import migrated
from tests.support.fuzzed_runs import ends_well, nothing_breaks
from tests.support.fuzzed_streams import Unit, changed, words_in
from tests.support.fuzzing import bounded, damaged, encoded, json_of, marks
from tests.support.postgres import PostgresServer
from tests.support.service import Service, running

pytestmark = [pytest.mark.anyio, *marks]

SCRIPT = 'cd "$1" && cat out && cat err >&2 && exit "$(cat status)"'
LIFECYCLE: dict[str, Any] = {
    "retry": None,
    "timeout": {"initial_token_ms": 30_000, "inter_token_ms": 30_000},
    "max_model_calls": 3,
}
WANTED: list[dict[str, Any]] = [
    {},
    {"actions": True, "tools": ["add", "echo"]},
    {"response_format": {"type": "object", "properties": {"one": {"type": "string"}}}},
    {"middle": "run_and_collect"},
]

_TEXT = {"type": "text", "text": "one"}
_USE = {"type": "tool_use", "id": "t", "name": "ls", "input": {"path": "/"}}
_SHELL = {
    "id": "i",
    "type": "command_execution",
    "command": "ls",
    "aggregated_output": "a",
    "status": "failed",
}


def _claude(kind: str, *content: Any) -> dict[str, Any]:
    return {"type": kind, "parent_tool_use_id": None, "message": {"id": "m", "content": list(content)}}


def _piece(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "stream_event", "parent_tool_use_id": None, "event": {"type": kind, **members}}


_RESULT: dict[str, Any] = {
    **{"type": "result", "subtype": "success", "is_error": False, "result": "one", "stop_reason": "end_turn"},
    "usage": {"input_tokens": 3, "cache_read_input_tokens": 1, "output_tokens": 4},
}
_PIECES = [
    _piece("content_block_start", content_block={"type": "text"}),
    _piece("content_block_delta", delta={"type": "text_delta", "text": "fine"}),
    _RESULT,
]

FORMATS: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]] = {
    "lines": [
        [
            {"type": "start"},
            {"type": "reasoning", "text": "so "},
            {"type": "message"},
            {"type": "text", "text": "one"},
            {"type": "tool_use", "id": "t", "name": "ls", "arguments": {"path": "/"}},
            {"type": "tool_result", "id": "t", "output": ["a"], "is_error": False},
            {"type": "tool_call", "id": "c", "name": "add", "arguments": {"a": 1, "b": 2}},
            {"type": "usage", "input_tokens": 3, "output_tokens": 4},
            {"type": "end", "reason": "tool_calls"},
        ],
        [{"type": "refusal", "text": "no"}, {"type": "end", "reason": "refusal"}],
        [{"type": "error", "message": "slow down", "status": 429, "retry_after_ms": 10}],
    ],
    "claude": [
        [
            _claude("assistant", {"type": "thinking", "thinking": "so"}, _TEXT, _USE),
            _claude("user", {"type": "tool_result", "tool_use_id": "t", "content": "a", "is_error": False}),
            _RESULT,
        ],
        [{**_RESULT, "subtype": "error_during_execution", "is_error": True, "api_error_status": 529}],
    ],
    "claude-partial": [_PIECES],
    "codex": [
        [
            {"type": "thread.started", "thread_id": "t"},
            {"type": "item.started", "item": _SHELL},
            {"type": "item.completed", "item": _SHELL},
            {
                "type": "item.completed",
                "item": {"type": "file_change", "id": "f", "changes": [{"path": "a"}]},
            },
            {"type": "item.completed", "item": {"type": "agent_message", "text": "one"}},
            {"type": "error", "message": "connecting again"},
            {"type": "turn.completed", "usage": {"input_tokens": 3, "output_tokens": 4}},
        ],
        [{"type": "turn.failed", "error": {"message": "no"}}],
    ],
}
"""What each format looks like."""

GOOD: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "lines": [{"type": "text", "text": "fine"}, {"type": "end", "reason": "stop"}],
    "claude": [_claude("assistant", {"type": "text", "text": "fine"}), _RESULT],
    "claude-partial": _PIECES,
    "codex": [
        {"type": "item.completed", "item": {"type": "agent_message", "text": "fine"}},
        {"type": "turn.completed", "usage": {}},
    ],
}
"""Says `fine`."""


def _packed(units: Sequence[Unit]) -> bytes:
    return b"".join(
        (payload if isinstance(payload, bytes) else encoded(payload)) + b"\n" for _, payload in units
    )


def outputs(format: str) -> st.SearchStrategy[bytes]:
    """What a command may write, from noise to an answer."""
    seeds = [[("", line) for line in lines] for lines in FORMATS[format]]
    anything = json_of(words_in([line for lines in FORMATS[format] for line in lines]))
    near = st.sampled_from(seeds).flatmap(lambda seed: changed(seed, anything)).map(_packed)
    lines = st.lists(anything, max_size=4).map(lambda said: _packed([("", one) for one in said]))
    return st.one_of(near, near, near.flatmap(damaged), lines, st.binary(max_size=300))


written_by = st.sampled_from(sorted(FORMATS)).flatmap(
    lambda format: st.tuples(st.just(format), outputs(format))
)


@dataclass(frozen=True)
class Player:
    """A command per format, each of which does what is in its folder."""

    service: Service
    folder: Path

    def will(self, format: str, output: bytes, errors: bytes = b"", status: int = 0) -> None:
        """What it does from now on."""
        for name, content in {"out": output, "err": errors, "status": str(status).encode()}.items():
            (self.folder / format / name).write_bytes(content)


@pytest.fixture(scope="module")
async def player(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Player]:
    folder = tmp_path_factory.mktemp("commands")
    models = {}
    for format in FORMATS:
        (folder / format).mkdir()
        argv = ("/bin/sh", "-c", SCRIPT, "sh", str(folder / format))
        more = {"native_tools": True} if format == "lines" else {"skip_stray_lines": format == "codex"}
        models[format] = commands.model(commands.settings(*argv, format=format, env=("PATH",), **more))
    async with migrated(postgres) as url, running(url, models=models) as service:
        yield Player(service, folder)


@bounded
@given(
    written=written_by,
    errors=st.just(b"") | st.binary(max_size=100) | st.just(b"\xff" * 20_000),
    status=st.just(0) | st.integers(0, 255),
    wanted=st.sampled_from(WANTED),
)
@example(
    written=(
        "claude",
        b'{"type": "result", "subtype": "error", "result": "x", "api_error_status": [529, null]}\n',
    ),
    errors=b"",
    status=0,
    wanted={},
)
async def test_any_output(
    player: Player, written: tuple[str, bytes], errors: bytes, status: int, wanted: dict[str, Any]
) -> None:
    format, output = written
    note(f"{format} {output!r} {errors!r} {status} {wanted}")
    service = player.service
    player.will(format, output, errors, status)
    branch = await service.branch(chat_model=format)
    with nothing_breaks():
        await ends_well(service, await service.operate(branch, lifecycle=LIFECYCLE, **wanted))
        player.will(format, _packed([("", line) for line in GOOD[format]]))
        after = await service.operate(branch, lifecycle=LIFECYCLE)
        assert (after["status"], after["result"]) == ("completed", "fine")
