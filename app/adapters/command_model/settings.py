"""What the operator can say about a command that answers as a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from app.adapters.answer_size import MAX_ANSWER_BYTES

Format = Literal["lines", "claude", "claude-partial", "codex"]
Input = Literal["json", "text", "argument"]

PLACEHOLDER: Final = re.compile(r"\{(model|prompt|system)\}")
_CLIENTS: Final = re.compile(r"\{(prompt|system)\}")
"""Those whose text is a client's."""
_NOT_FOR_CHILDREN: Final = ("BRANCHLINE_", "DATABASE_URL")

_Word = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]+$")]


class CommandSettings(BaseModel):
    """A command that answers as a model: `[models.NAME.command]`, in the settings only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    argv: tuple[_Word, ...]
    """The command and its arguments, run as they are, without a shell. `{model}`, `{system}` and `{prompt}`
    in an argument stand for the model's name on the wire, the system text and the conversation."""
    cwd: Path
    """Folder that it is started in, absolute: what it may read and write by itself begins there."""
    env: tuple[_Word, ...] = ()
    """Names of the variables that it is given, `PATH` and `HOME` too; it has no others."""
    format: Format = "lines"
    """What its output is."""
    input: Input | None = None
    """How it is told the conversation: as JSON or text on its standard input, or in its arguments. JSON by
    default, and text where the format is another program's."""
    native_tools: bool = False
    """Whether it asks for tool calls by `tool_call` lines; only with JSON as its input."""
    skip_stray_lines: bool = False
    """Whether lines of its output that are no JSON objects are skipped; they are a fault otherwise."""
    max_line_bytes: int = Field(4 * 1024 * 1024, ge=1_024, le=64 * 1024 * 1024)
    """Largest line of its output."""
    max_answer_bytes: int = Field(MAX_ANSWER_BYTES, ge=1_024, le=MAX_ANSWER_BYTES)
    """How much it may write in all, in one answer; it is ended when it writes more."""
    max_stderr_bytes: int = Field(4_096, ge=0, le=64 * 1024)
    """How much of the end of its standard error a fault tells."""
    grace_s: float = Field(2.0, ge=0, le=60)
    """How long it has to end after SIGTERM, before SIGKILL."""

    @field_validator("env")
    @classmethod
    def _none_of_ours(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name.startswith(_NOT_FOR_CHILDREN):
                raise ValueError(f"{name} is the service's own, and is given to no command")
        return names

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, cwd: Path) -> Path:
        if not cwd.is_absolute():
            raise ValueError("is no absolute path")
        return cwd

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.argv:
            raise ValueError("argv: no command is named")
        if PLACEHOLDER.search(self.argv[0]):
            raise ValueError("argv: the command itself holds no placeholder")
        if ("{prompt}" in "\0".join(self.argv)) is not (self.told == "argument"):
            raise ValueError("argv: `{prompt}` stands there exactly if `input` is argument")
        if self.format != "lines" and self.told == "json":
            raise ValueError("input: JSON is what a command of the format `lines` reads")
        if self.native_tools and self.told != "json":
            raise ValueError("native_tools: only where `input` is json")
        self._refuse_options_of_clients()
        return self

    def _refuse_options_of_clients(self) -> None:
        """A text of a client's that begins an argument could be read as an option."""
        for argument in self.argv[1:]:
            if argument == "--":
                return
            if _CLIENTS.match(argument):
                raise ValueError(
                    f"argv: {argument!r} could become an option of the command; write it as part of one "
                    "(`--text={prompt}`), or after an argument `--`"
                )

    @property
    def told(self) -> Input:
        """How the command is told the conversation."""
        return self.input or ("json" if self.format == "lines" else "text")
