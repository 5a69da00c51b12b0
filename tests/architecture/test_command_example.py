"""The how-to about commands: its program answers, and its settings are settings."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from app.adapters.command_model.command import Command
from app.adapters.command_model.provider import CommandProvider
from app.settings import ModelSettings
from tests.architecture.test_documents import DOCS, blocks
from tests.support.answers import ask, opening
from tests.support.commands import settings

pytestmark = pytest.mark.anyio

PAGE = DOCS / "how-to" / "use-a-command-as-a-model.md"


async def test_the_program_answers(tmp_path: Path) -> None:
    (program,) = blocks(PAGE, "python")
    script = tmp_path / "echo.py"
    script.write_text(program)
    said = settings(sys.executable, str(script))
    async with CommandProvider({"m": Command(said, said.argv, {}, ())}) as provider:
        answer = await ask(provider, opening("command"))
    assert (answer.text, answer.finish, answer.ended) == ("You asked: hello", "stop", True)


@pytest.mark.parametrize("page", [PAGE, DOCS / "operations.md"], ids=lambda page: page.name)
def test_the_settings_can_be_read(page: Path) -> None:
    models = [
        model for body in blocks(page, "toml") for model in tomllib.loads(body).get("models", {}).values()
    ]
    read = [ModelSettings.model_validate(model) for model in models]
    assert any(model.command is not None for model in read)
