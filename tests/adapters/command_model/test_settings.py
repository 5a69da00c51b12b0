"""What an operator can say about a command, and what is refused at start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.adapters.command_model.command import command_of
from app.adapters.command_model.settings import CommandSettings
from app.settings import ModelSettings
from tests.support.commands import settings

PLAIN: dict[str, Any] = {"argv": ["agent"], "cwd": "/"}

FINE: list[dict[str, Any]] = [
    {},
    {"argv": ["agent", "--model", "{model}"]},
    {"argv": ["agent", "--", "{prompt}"], "input": "argument"},
    {"argv": ["agent", "--text={prompt}"], "input": "argument"},
    {"argv": ["agent", "--system={system}"]},
    {"argv": ["agent", "{other} {}"]},
    {"format": "claude"},
    {"format": "codex", "input": "text"},
    {"native_tools": True},
    {"env": ["PATH", "HOME", "AGENT_KEY"]},
]

BAD: list[tuple[dict[str, Any], str]] = [
    ({"argv": []}, "argv"),
    ({"argv": [""]}, "argv"),
    ({"argv": ["a\0b"]}, "argv"),
    ({"argv": "agent --print"}, "argv"),
    ({"argv": ["{model}"]}, "no placeholder"),
    ({"argv": ["agent", "{prompt}"], "input": "argument"}, "could become an option"),
    ({"argv": ["agent", "--system", "{system}"]}, "could become an option"),
    ({"argv": ["agent", "--", "{prompt}"]}, "exactly if"),
    ({"input": "argument"}, "exactly if"),
    ({"format": "claude", "input": "json"}, "input: JSON"),
    ({"format": "codex", "native_tools": True}, "native_tools"),
    ({"input": "text", "native_tools": True}, "native_tools"),
    ({"format": "yaml"}, "format"),
    ({"cwd": "work"}, "absolute"),
    ({"cwd": None}, "cwd"),
    ({"env": ["BRANCHLINE_SECRET_KEY"]}, "given to no command"),
    ({"env": ["DATABASE_URL"]}, "given to no command"),
    ({"max_line_bytes": 10}, "max_line_bytes"),
    ({"max_answer_bytes": 1 << 40}, "max_answer_bytes"),
    ({"grace_s": -1}, "grace_s"),
    ({"shell": True}, "shell"),
]


@pytest.mark.parametrize("more", FINE)
def test_what_can_be_said(more: dict[str, Any]) -> None:
    CommandSettings.model_validate({**PLAIN, **more})


@pytest.mark.parametrize(("more", "words"), BAD)
def test_what_cannot_be_said(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        CommandSettings.model_validate({**PLAIN, **more})
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "more",
    [
        {"provider": "command"},
        {"provider": "openai", "command": PLAIN},
        {"provider": "command", "command": PLAIN, "base_url": "http://127.0.0.1"},
        {"provider": "command", "command": PLAIN, "api_key_env": "KEY"},
        {"provider": "command", "command": PLAIN, "options": {"argv": ["id"]}},
    ],
)
def test_the_provider_and_its_command_belong_together(more: dict[str, Any]) -> None:
    ModelSettings.model_validate({"provider": "command", "model": "m", "command": PLAIN})
    with pytest.raises(ValidationError):
        ModelSettings.model_validate({"model": "m", **more})


def program(folder: Path, name: str = "agent") -> Path:
    made = folder / name
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    return made


def test_a_command_is_found_by_the_services_path_and_given_what_is_named(tmp_path: Path) -> None:
    made = program(tmp_path)
    environ = {
        "PATH": str(tmp_path),
        "KEY": "sk-long-secret",
        "PIN": "123",
        "LONG": "sk-long-secret-and-more",
    }
    command = command_of(settings("agent", "-x", env=("PATH", "KEY", "PIN", "LONG")), environ)
    assert command.argv == (str(made), "-x")
    assert dict(command.env) == environ
    # A path and a short word are no secrets; a longer one is masked before what it begins with.
    assert command.secrets == ("sk-long-secret-and-more", "sk-long-secret")
    assert "sk-long" not in repr(command)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"argv": ("gone",)}, "no command 'gone'"),
        ({"argv": ("./agent",)}, "no command"),
        ({"cwd": Path("/no/such/folder")}, "no folder"),
        ({"env": ("A", "B")}, "not set are A, B"),
    ],
)
def test_what_is_not_there_is_told_at_start(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    program(tmp_path)
    said = settings("agent").model_copy(update=more)
    with pytest.raises(ValueError, match=words):
        command_of(said, {"PATH": str(tmp_path)})
