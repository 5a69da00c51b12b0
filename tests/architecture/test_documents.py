"""The documents are true: links lead somewhere, paths exist, snippets compile, commands do what they say."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from app.core import json_text
from app.settings import ModelSettings
from tests.conftest import ROOT
from tests.support.service import Service, running

DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
DECISIONS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
NAMED = ["ARCHITECTURE.md", "CONTRIBUTING.md", *(str(page.relative_to(ROOT)) for page in DECISIONS)]
"""Pages in which every path is one of this repository."""

HOST = "127.0.0.1:8000"
"""Where the documents say that the service is; the only thing that is replaced in their commands."""

STEP = "@@ step @@"

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+(?:/|\.(?:py|md|toml|txt|sh|mjs|json)))(?![\w/])")

ADDING: Mapping[str, Any] = {
    "streams": [
        {
            "attempts": [
                [
                    {"text": "Let me add"},
                    {"text": " that up."},
                    {
                        "tool_call": {
                            "index": 0,
                            "id": "c1",
                            "name": "add",
                            "arguments": '{"a": 19, "b": 23}',
                        }
                    },
                    {"end": "tool_calls"},
                ]
            ]
        }
    ]
}
"""What stands in for the model that `bin/run` calls `local`."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    found = _FENCE.findall(page.read_text("utf-8"))
    return [textwrap.dedent(body) for _, named, body in found if named == language]


def anchors(page: Path) -> set[str]:
    """What a fragment can name: the headings, as they are made into ids where such pages are shown."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {_slug(title) for title in titles}


def _slug(title: str) -> str:
    plain = re.sub(r"[`*]|\[|\]\([^)]*\)", "", title).lower()
    kept = (c for c in plain if c in " -_" or unicodedata.category(c)[0] in "LN")
    return "".join(kept).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        if target.startswith(("https://", "http://")):
            continue
        path, _, fragment = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert there.is_relative_to(ROOT), target
        if fragment:
            assert fragment in anchors(there), target


def test_the_map_shows_every_page() -> None:
    shown = {(DOCS / target).resolve() for target in _LINK.findall((DOCS / "README.md").read_text("utf-8"))}
    pages = {*DOCS.glob("*.md"), *(DOCS / "how-to").glob("*.md")} - {DOCS / "README.md"}
    assert pages <= shown


@pytest.mark.parametrize("name", NAMED)
def test_paths_exist(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    spans = re.findall(r"`([^`\n]+)`", _FENCE.sub("", text)) + blocks(ROOT / name, "")
    named = {path for span in spans for path in _PATH.findall(span) if "/" in path}
    assert named or name not in ("ARCHITECTURE.md", "CONTRIBUTING.md")
    gone = [path for path in sorted(named) if not any((at / path).exists() for at in (ROOT, ROOT / "app"))]
    assert not gone


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_and_json_can_be_read(page: Path) -> None:
    for body in blocks(page, "python"):
        ast.parse(body)
    for body in blocks(page, "json"):
        json.loads(body)


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_a_decision_is_listed_and_complete(page: Path) -> None:
    text = page.read_text("utf-8")
    parts = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert parts == re.findall(r"^## (.*)$", (DOCS / "decisions/template.md").read_text(), re.MULTILINE)
    title = re.match(rf"# {page.name[:4]}\. (.*)\n\nStatus: \w+", text)
    assert title is not None
    listed = (DOCS / "decisions/README.md").read_text("utf-8")
    assert f"| [{page.name[:4]}]({page.name}) | {title[1]} |" in listed


# Commands


@pytest.fixture
async def served(database_url: str) -> AsyncIterator[Service]:
    """What `bin/run` serves, with a script for a model."""
    local = ModelSettings(provider="scripted", model="local", options=dict(ADDING))
    async with running(database_url, tool_modules=("examples.tools",), models={"local": local}) as service:
        yield service


async def output_of(*command: str, cwd: Path, **environment: str) -> str:
    """What a command prints; it has to succeed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, f"{out.decode()}\n{err.decode()}"
    return out.decode()


def commands(*bodies: str) -> tuple[str, list[list[str]]]:
    """Blocks as one script that marks its steps, and what each step's output has to contain.

    A step ends with lines that begin with `# →`.
    """
    lines: list[str] = []
    wanted: list[list[str]] = []
    ending = False
    for line in "\n".join(bodies).splitlines():
        if not (says := line.startswith("# →")):
            lines.append(line)
        elif not ending:
            lines.append(f"echo; echo '{STEP}'")
            wanted.append([line[3:].strip()])
        else:
            wanted[-1].append(line[3:].strip())
        ending = says
    return "\n".join(lines), wanted


async def follow(service: Service, *bodies: str, cwd: Path, **environment: str) -> list[str]:
    """Run blocks against the service, check what they promise, and give the output of each step."""
    script, wanted = commands(*bodies)
    script = script.replace(HOST, service.url.removeprefix("http://"))
    out = await output_of("bash", "-euo", "pipefail", "-c", script, cwd=cwd, **environment)
    steps = out.split(STEP)
    assert len(steps) == len(wanted) + 1
    for step, texts in zip(steps, wanted, strict=False):
        missing = [text for text in texts if text not in step]
        assert not missing, step
    return steps


def answers_in(out: str) -> Iterator[Any]:
    """The JSON bodies in an output, where one may directly follow another; no key may stand twice in them."""
    for line in out.splitlines():
        rest = line
        while rest.startswith("{"):
            _, end = json.JSONDecoder().raw_decode(rest)
            yield json_text.read(rest[:end])
            rest = rest[end:]


def client_blocks(page: Path) -> Iterator[str]:
    """The blocks that talk to a running service."""
    return (body for body in blocks(page, "sh") if "$URL" in body or body.startswith("URL="))


@pytest.mark.anyio
async def test_the_round_trip_of_the_readme(served: Service, tmp_path: Path) -> None:
    (body,) = client_blocks(ROOT / "README.md")
    (out,) = await follow(served, body, cwd=tmp_path)
    assert out.count("event: stream.end") == 2
    assert out.count('"status":"completed","result"') == 2
    assert out.count(":6\nevent: ") == 2
    run, messages, calls, events, acted = answers_in(out)
    assert run["result"]["action_responses"][0]["output"] == acted["result"][0]["output"] == 42
    pair = [message["content"] for message in messages["data"][-2:]]
    assert pair[0]["action_response_id"] == messages["data"][-1]["id"]
    assert pair[1]["action_request_id"] == messages["data"][-2]["id"]
    assert calls["data"][0]["action_request_id"] == messages["data"][-2]["id"]
    assert [event["seq"] for event in events["data"]] == [1, 2, 3, 4, 5]


@pytest.mark.anyio
async def test_the_commands_of_the_clients_guide(served: Service, tmp_path: Path) -> None:
    bodies = list(client_blocks(DOCS / "http.md"))
    steps = await follow(served, *bodies, cwd=tmp_path)
    assert len(steps) > 15


@pytest.mark.anyio
async def test_the_commands_of_the_credentials_guide(served: Service, tmp_path: Path) -> None:
    steps = await follow(served, *client_blocks(DOCS / "how-to" / "keep-credentials.md"), cwd=tmp_path)
    assert "the key of our model" not in "".join(steps)


@pytest.mark.anyio
async def test_the_commands_of_the_histories_guide(served: Service, tmp_path: Path) -> None:
    await follow(served, *client_blocks(DOCS / "how-to" / "keep-and-move-histories.md"), cwd=tmp_path)


@pytest.mark.anyio
async def test_the_commands_of_the_consensus_guide(served: Service, tmp_path: Path) -> None:
    await follow(served, *client_blocks(DOCS / "how-to" / "ask-several-models.md"), cwd=tmp_path)


@pytest.mark.anyio
async def test_the_first_commands_of_the_quickstart(served: Service, tmp_path: Path) -> None:
    model, _ = client_blocks(DOCS / "quickstart.md")
    (out,) = await follow(served, model, cwd=tmp_path)
    assert '"chat_model":"mine"' in out


@pytest.mark.anyio
async def test_the_keys_of_the_quickstart(database_url: str, tmp_path: Path) -> None:
    (making,) = (body for body in blocks(DOCS / "quickstart.md", "sh") if "keys create" in body)
    *making_lines, serving = making.strip().splitlines()
    assert serving == ".venv/bin/branchline serve --host 0.0.0.0"
    script = "\n".join([*making_lines, 'echo "$BRANCHLINE_SECRET_KEY"'])
    script = script.replace(".venv/bin/branchline", f"{sys.executable} -m app.cli")
    out = await output_of("bash", "-euc", script, cwd=ROOT, DATABASE_URL=database_url)
    admin, key, secret = out.splitlines()
    _, using = client_blocks(DOCS / "quickstart.md")
    async with running(database_url, secret_key=secret) as service:
        (out,) = await follow(service, using, cwd=tmp_path, ADMIN=admin, KEY=key)
    assert '"chat_model":"small"' in out


@pytest.mark.anyio
@pytest.mark.parametrize("example", ["round_trip.sh", "round_trip.mjs"])
async def test_the_examples(example: str, served: Service, tmp_path: Path) -> None:
    runner = "node" if example.endswith(".mjs") else "sh"
    if shutil.which(runner) is None:
        pytest.skip(f"{runner} is not installed")
    script = tmp_path / example
    text = (ROOT / "examples" / example).read_text("utf-8")
    assert text.count(HOST) == 1
    script.write_text(text.replace(HOST, served.url.removeprefix("http://")), "utf-8")
    out = await output_of(runner, str(script), cwd=tmp_path)
    assert "1 to " in out
    assert "messages   instruction assistant_response action_request action_response" in out
