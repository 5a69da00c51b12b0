"""The local model as a child process: it answers, ends with its parent, and comes back."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from app.adapters.embedded.errors import LocalModelFailed, LocalModelMissing
from app.adapters.embedded.model import EmbeddedModel, find_weights
from tests.adapters.embedded.conftest import Holder
from tests.support.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.embedded]

VERDICT = {
    "type": "object",
    "properties": {"verdict": {"enum": ["yes", "no"]}, "certain": {"type": "boolean"}},
    "required": ["verdict", "certain"],
    "additionalProperties": False,
}


@pytest.fixture
def model() -> Iterator[EmbeddedModel]:
    try:
        find_weights()
    except LocalModelMissing as missing:
        pytest.skip(str(missing))
    with EmbeddedModel(deadline_s=1) as started:
        yield started


def ask(model: EmbeddedModel, key: str | None = None, **options: object) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "Is water wet?"}], "max_tokens": 64, **options}
    headers = {"Authorization": f"Bearer {model.api_key if key is None else key}"}
    return httpx.post(f"{model.base_url}/chat/completions", json=body, headers=headers, timeout=60)


def child_of(model: EmbeddedModel) -> int:
    assert model.pid
    return model.pid


def binds(to_bind: socket.socket, port: int | None) -> bool:
    try:
        to_bind.bind(("127.0.0.1", port))
    except OSError:  # the killed process still has it for a moment
        return False
    return True


def gone(pid: int) -> bool:
    """Whether the process has ended; a zombie that nobody has collected yet counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_it_answers_in_the_form_that_is_asked_for(model: EmbeddedModel) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": VERDICT}}
    answer = ask(model, response_format=form)
    assert answer.status_code == 200
    content = json.loads(answer.json()["choices"][0]["message"]["content"])
    assert content["verdict"] in ("yes", "no")
    assert isinstance(content["certain"], bool)


def test_it_serves_only_who_has_the_key(model: EmbeddedModel) -> None:
    assert ask(model, key="guess").status_code == 401


async def test_killed_it_comes_back_at_the_same_address(model: EmbeddedModel) -> None:
    address, killed = model.base_url, child_of(model)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: not model.is_ready())
    await model.revive()
    assert model.is_ready()
    assert model.base_url == address
    assert model.pid != killed


def hang(child: int) -> None:
    """Stop a child. Its threads go on for a moment after the signal: wait until they stand still."""
    os.kill(child, signal.SIGSTOP)
    os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)


async def test_one_that_hangs_is_noticed_and_replaced(model: EmbeddedModel) -> None:
    hung = child_of(model)
    hang(hung)
    assert not model.is_ready()
    await model.revive()
    assert model.is_ready()
    eventually(lambda: gone(hung))


async def test_it_moves_when_its_port_was_taken(model: EmbeddedModel) -> None:
    address = model.base_url
    os.kill(child_of(model), signal.SIGKILL)
    eventually(lambda: not model.is_ready())
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        eventually(lambda: binds(squatter, urlsplit(address).port), what="port given up")
        squatter.listen()
        await model.revive()
        assert model.base_url != address
        assert model.is_ready()


async def test_stopped_it_stays_stopped(model: EmbeddedModel) -> None:
    child = child_of(model)
    model.stop()
    await model.revive()
    assert model.pid is None
    assert not model.is_ready()
    assert gone(child)


@pytest.mark.parametrize("alone", [False, True], ids=["with its group", "alone"])
def test_it_ends_when_its_parent_is_killed(
    model: EmbeddedModel, run_module: Callable[..., Holder], alone: bool
) -> None:
    parent = run_module("model_holder")
    child = int(parent.report()["pid"])
    assert not gone(child)
    parent.kill(alone=alone)
    eventually(lambda: gone(child), what="child of a killed parent ended")
    assert model.is_ready()


def test_without_weights_the_message_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LocalModelMissing, match="BRANCHLINE_MODEL_WEIGHTS"):
        EmbeddedModel(tmp_path / "none.gguf").start()


def test_weights_that_are_none_are_a_failure_with_the_reason(model: EmbeddedModel, tmp_path: Path) -> None:
    weights = tmp_path / "bad.gguf"
    weights.write_bytes(b"no weights")
    broken = EmbeddedModel(weights)
    with pytest.raises(LocalModelFailed):
        broken.start()
    assert broken.pid is None


def test_before_the_start_there_is_nothing(tmp_path: Path) -> None:
    model = EmbeddedModel(tmp_path / "none.gguf")
    assert not model.is_ready()
    model.stop()
    with pytest.raises(RuntimeError, match="not been started"):
        _ = model.base_url
