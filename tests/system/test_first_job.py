"""`branchline run`: everything on one machine, a first job, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.support.polling import until

pytestmark = [pytest.mark.anyio, pytest.mark.embedded]

ROOT = Path(__file__).resolve().parents[2]


async def start(data_dir: Path, *more: str, **environment: str) -> asyncio.subprocess.Process:
    """Start the command on a free port, without a database of anybody else's."""
    kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "app.cli", "run", "--port", "0", "--data-dir", str(data_dir), *more),
        cwd=ROOT,
        env={**kept, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def shown(process: asyncio.subprocess.Process) -> str:
    """What it printed to its end."""
    output, _ = await asyncio.wait_for(process.communicate(), 100)
    return output.decode()


def of_folder(folder: Path) -> list[str]:
    """The processes that have to do with a folder: its database, and the model by its log."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            files = [os.readlink(link) for link in (entry / "fd").iterdir()]
        except OSError:
            continue
        if str(folder) in command or any(name.startswith(str(folder)) for name in files):
            found.append(command)
    return found


@pytest.mark.slow
async def test_the_first_job_runs_again_and_again_beside_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    branches = set()
    for _ in range(2):
        process = await start(tmp_path, "--exit")
        output = await shown(process)
        assert process.returncode == 0, output
        for part in ("TOOL_START", "RUN_COMPLETED", "request ", "response ", "without a gap"):
            assert part in output
        branches.add(output.partition("1. A branch")[2].split()[0])
    assert len(branches) == 2
    assert (tmp_path / "notes.txt").read_text() == "mine"
    if sys.platform == "linux":
        await until(lambda: not of_folder(tmp_path), within_s=30)


async def test_without_a_model_a_script_takes_its_place(tmp_path: Path) -> None:
    process = await start(tmp_path, "--exit", BRANCHLINE_MODEL_WEIGHTS=str(tmp_path / "none.gguf"))
    output = await shown(process)
    assert process.returncode == 0, output
    assert "script" in output
    assert 'add({"a": 19, "b": 23})' in output


async def test_a_job_that_fails_is_the_exit_status(tmp_path: Path) -> None:
    """The tools of the job are missing: its first step is refused, in words."""
    config = tmp_path / "branchline.toml"
    config.write_text(
        '[models.scripted]\nprovider = "scripted"\nmodel = "x"\n[models.scripted.options]\n'
        'streams = [{attempts = [[{error = {kind = "status", status = 401}}]]}]\n'
    )
    process = await start(
        tmp_path,
        "--exit",
        BRANCHLINE_MODEL_WEIGHTS=str(tmp_path / "none.gguf"),
        BRANCHLINE_CONFIG=str(config),
    )
    output = await shown(process)
    assert process.returncode == 1, output
    assert "The first job failed" in output
    assert "Traceback" not in output


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_database_and_model_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    process = await start(tmp_path)
    assert process.stdout is not None
    url = ""
    async for line in process.stdout:
        if b" on http://" in line:
            url = line.decode().partition(" on ")[2].split(",")[0].strip()
        if b"Ctrl-C" in line:
            break
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{url}/readyz")).status_code == 200
    assert any("postgres" in command for command in of_folder(tmp_path))
    assert any("model" in command for command in of_folder(tmp_path))
    process.kill()
    await process.wait()
    await until(lambda: not _alive(of_folder(tmp_path)), within_s=30)


def _alive(commands: Sequence[str]) -> list[str]:
    return [command for command in commands if command.strip()]


async def test_the_first_job_works_where_keys_are_asked_for_and_on_a_database_of_others(
    tmp_path: Path, database_url: str
) -> None:
    """A fresh folder that nobody has made yet; first without a key, then with one."""
    folder = tmp_path / "not" / "there"
    environment = {
        "DATABASE_URL": database_url,
        "BRANCHLINE_MODEL_WEIGHTS": str(tmp_path / "none.gguf"),
    }
    for bootstrap_key in ("", "a key for the first set-up"):
        process = await start(folder, "--exit", **environment, BRANCHLINE_BOOTSTRAP_KEY=bootstrap_key)
        output = await shown(process)
        assert process.returncode == 0, output


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--port", "99999"], {}),
        (["--data-dir", "{file}"], {}),
        ([], {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}),
        ([], {"DATABASE_URL": "mysql://localhost/x"}),
        ([], {"BRANCHLINE_NO_SUCH_SETTING": "1"}),
        ([], {"BRANCHLINE_TOOL_MODULES": "tests.support.tools"}),  # it has an `add`, as the examples do
    ],
)
async def test_a_wrong_setting_is_a_line_that_says_so(
    tmp_path: Path, arguments: list[str], environment: dict[str, str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    process = await start(
        tmp_path / "data",
        "--exit",
        *(argument.format(file=file) for argument in arguments),
        **{"BRANCHLINE_MODEL_WEIGHTS": str(tmp_path / "none.gguf"), **environment},
    )
    output = await shown(process)
    assert process.returncode == 2, output
    assert "Traceback" not in output
