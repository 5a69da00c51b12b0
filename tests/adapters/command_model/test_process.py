"""Commands as processes: how they are started, told, read and ended, on both event loops."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.adapters.command_model.command import Command
from app.adapters.command_model.provider import CommandProvider
from app.core.chunks import TextDelta
from app.core.faults import Fault, FaultKind
from app.core.prompt import Prompt, PromptMessage
from tests.support.answers import Answer, ask, opening
from tests.support.commands import alive, is_running, python
from tests.support.polling import until

pytestmark = pytest.mark.anyio

LOOPS = [pytest.param(("asyncio", {"use_uvloop": uv}), id="uvloop" if uv else "asyncio") for uv in (0, 1)]
SAY = "import json, os, signal, sys, time\nsay = lambda **line: print(json.dumps(line), flush=True)\n"
END = "say(type='end', reason='stop')\n"
HANG = "time.sleep(3600)\n"


@pytest.fixture(scope="module", params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """The service runs on uvloop, and can be run on asyncio's own loop."""
    return request.param


class Stage:
    """A provider with one command, `m`."""

    def __init__(self, provider: CommandProvider, known: dict[str, Command], folder: Path) -> None:
        self.provider = provider
        self.folder = folder
        self._known = known

    def runs(self, code: str, **more: Any) -> None:
        """Have the command run this code, with the folder as its argument."""
        self._known["m"] = python(SAY + code, str(self.folder), **more)

    async def answered(self, prompt: Prompt | None = None) -> Answer:
        return await ask(self.provider, opening("command", prompt=prompt) if prompt else opening("command"))

    async def fault(self) -> Fault:
        answer = await self.answered()
        assert answer.fault is not None
        return answer.fault

    async def pid(self, name: str) -> int:
        """The process id that the command left in a file of the folder."""
        path = self.folder / name
        await until(lambda: path.exists() and path.read_text().strip())
        return int(path.read_text())


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    known: dict[str, Command] = {}
    async with CommandProvider(known) as provider:
        yield Stage(provider, known, tmp_path)


NOTES = "note = lambda name: open(os.path.join(sys.argv[1], name), 'w').write(str(os.getpid()))\n"
CHILD = (
    NOTES
    + """
if os.fork() == 0:
    {deaf}
    note('grandchild')
    time.sleep(3600)
note('child')
"""
)


async def test_only_what_is_named_reaches_the_command(stage: Stage) -> None:
    environ = {"TOKEN": "a token", "BRANCHLINE_SECRET_KEY": "pepper", "OTHER": "x"}
    stage.runs(
        "say(type='text', text=json.dumps([dict(os.environ), os.getcwd(), sys.argv[2:]]))\n" + END,
        environ=environ,
        env=("TOKEN",),
        cwd=stage.folder,
    )
    env, folder, _ = json.loads((await stage.answered()).text)
    # What an interpreter adds by itself is none of ours.
    assert {name: value for name, value in env.items() if name != "LC_CTYPE"} == {"TOKEN": "a token"}
    assert Path(folder) == stage.folder


async def test_it_leads_a_session_and_a_group_of_its_own(stage: Stage) -> None:
    stage.runs("say(type='text', text=str([os.getpid(), os.getpgid(0), os.getsid(0)]))\n" + END)
    pid, group, session = json.loads((await stage.answered()).text)
    assert pid == group == session != os.getpgid(0)


async def test_no_file_of_ours_is_open_in_it(stage: Stage) -> None:
    held = os.open(os.devnull, os.O_RDONLY)
    try:
        os.set_inheritable(held, True)
        stage.runs("say(type='text', text=json.dumps(sorted(os.listdir('/dev/fd'))))\n" + END)
        fds = json.loads((await stage.answered()).text)
    finally:
        os.close(held)
    assert {"0", "1", "2"} <= set(fds)
    assert len(fds) <= 4  # and the one that the listing itself took


BIG = Prompt(messages=[PromptMessage("user", "x" * 3_000_000)])


async def test_a_big_input_and_a_big_output_do_not_wait_for_each_other(stage: Stage) -> None:
    stage.runs(
        """
for _ in range(2_000): say(type='text', text='y' * 1_000)
sys.stderr.write('z' * 2_000_000)
told = json.loads(sys.stdin.read())
say(type='text', text=str(len(told['messages'][0]['text'])))
"""
        + END
    )
    answer = await stage.answered(BIG)
    assert answer.fault is None
    assert (answer.text.count("y"), answer.text.strip("y"), answer.ended) == (2_000_000, "3000000", True)


async def test_a_command_that_does_not_read_its_input(stage: Stage) -> None:
    stage.runs("say(type='text', text='a')\n" + END)
    answer = await stage.answered(BIG)
    assert (answer.text, answer.fault, answer.ended) == ("a", None, True)


async def test_a_slow_reader_holds_the_command_up(stage: Stage) -> None:
    """What is not taken does not pile up here."""
    stage.runs(
        NOTES
        + """
for n in range(100_000):
    say(type='text', text='y' * 1_000)
    if n == 3_000: note('far')
"""
        + END
    )
    async with stage.provider.open(opening("command")) as batches:
        seen = 0
        async for batch in batches:
            assert sum(len(chunk.text) for chunk in batch if isinstance(chunk, TextDelta)) < 1_000_000
            seen += len(batch)
            if seen > 100:
                break
    assert not (stage.folder / "far").exists()


async def test_a_command_that_writes_without_end_is_ended(stage: Stage) -> None:
    stage.runs(
        NOTES + "note('child')\nwhile True: say(type='text', text='y' * 1_000)\n",
        max_answer_bytes=2_000_000,
    )
    answer = await stage.answered()
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.type) == (FaultKind.MALFORMED, "too_large")
    assert 0 < len(answer.text) < 2_000_000
    pid = await stage.pid("child")
    await until(lambda: not alive(pid))


async def test_an_exit_status_is_a_fault_with_the_end_of_its_complaints(stage: Stage) -> None:
    stage.runs(
        """
sys.stderr.write('early' + 'x' * 500_000 + chr(0) + chr(10))
sys.stderr.write(os.environ['TOKEN'] + ' is no key' + chr(10))
sys.exit(3)
""",
        environ={"TOKEN": "sk-secret-token"},
        env=("TOKEN",),
        max_stderr_bytes=1_024,
    )
    fault = await stage.fault()
    assert (fault.kind, fault.type, fault.provider_code) == (FaultKind.IN_STREAM, "exit_status", 3)
    assert fault.message == "the command failed with exit status 3: [redacted] is no key"
    told = fault.detail["stderr"]
    assert len(told) <= 1_024
    assert "early" not in told
    assert "secret" not in repr(fault)


async def test_no_part_of_a_secret_is_left_where_complaints_are_cut(stage: Stage) -> None:
    """Wherever in a secret the cut is."""
    secret = "".join(f"{n:03}" for n in range(40))
    for more in range(0, 120, 8):
        stage.runs(
            f"sys.stderr.write(os.environ['T'] * 100 + '.' * (10 + {more}))\nsys.exit(1)\n",
            environ={"T": secret},
            env=("T",),
            max_stderr_bytes=512,
        )
        told = (await stage.fault()).detail["stderr"]
        assert "[redacted]." in told
        assert set(told) <= set("[redacted].")


async def test_a_signal_is_a_lost_connection(stage: Stage) -> None:
    stage.runs("say(type='text', text='a')\nos.kill(os.getpid(), signal.SIGKILL)\n")
    answer = await stage.answered()
    assert answer.text == "a"
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.provider_code) == (FaultKind.NETWORK, "SIGKILL")


@pytest.mark.parametrize("code", ["", "say(type='text', text='a')\n", "print('{', end='')\n"])
async def test_an_end_without_its_line_is_a_cut_answer(stage: Stage, code: str) -> None:
    stage.runs(code)
    answer = await stage.answered()
    assert (answer.opened, answer.ended, answer.fault) == (True, False, None)


async def test_a_status_after_the_end_does_not_matter(stage: Stage) -> None:
    stage.runs(END + "sys.exit(1)\n")
    answer = await stage.answered()
    assert (answer.ended, answer.fault) == (True, None)


async def test_a_complaint_is_told_where_no_end_follows(stage: Stage) -> None:
    stage.runs("say(type='complaint', message='connecting again')\nsys.exit(1)\n")
    fault = await stage.fault()
    assert (fault.kind, fault.message) == (FaultKind.IN_STREAM, "connecting again")


async def test_a_command_that_is_gone_was_not_started(stage: Stage) -> None:
    program = stage.folder / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    stage.runs("")
    stage._known["m"] = Command(stage._known["m"].settings, (str(program),), {}, ())
    program.unlink()
    fault = await stage.fault()
    assert (fault.kind, fault.type) == (FaultKind.INTERNAL, "not_started")
    assert str(stage.folder) not in fault.message
    stage._known.clear()
    assert (await stage.fault()).type == "not_started"


async def test_an_argument_that_is_too_long_was_not_passed_on(stage: Stage) -> None:
    stage.runs(END)
    known = stage._known["m"]
    settings = known.settings.model_copy(
        update={"input": "argument", "argv": (*known.settings.argv, "--", "{prompt}")}
    )
    stage._known["m"] = Command(settings, (*known.argv, "--", "{prompt}"), {}, ())
    assert (await stage.answered()).ended
    answer = await stage.answered(BIG)
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.type) == (FaultKind.INTERNAL, "not_started")


@pytest.mark.parametrize("deaf", ["pass", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
async def test_leaving_ends_grandchildren_too(stage: Stage, deaf: str) -> None:
    code = CHILD.format(deaf=deaf) + "say(type='text', text='a')\n" + HANG
    stage.runs(code, grace_s=0.2)
    async with stage.provider.open(opening("command")) as batches:
        async for batch in batches:
            if TextDelta("a") in batch:
                break
        pids = [await stage.pid(name) for name in ("child", "grandchild")]
        assert all(map(alive, pids))
    await until(lambda: not any(map(is_running, pids)))


async def test_a_command_has_time_to_tidy_up(stage: Stage) -> None:
    stage.runs(
        NOTES
        + """
def tidy(*_):
    time.sleep(0.2)
    note('tidied')
    sys.exit(0)
signal.signal(signal.SIGTERM, tidy)
say(type='text', text='a')
"""
        + HANG,
        grace_s=30,
    )
    async with stage.provider.open(opening("command")) as batches:
        await anext(batches)
    await until((stage.folder / "tidied").exists)


async def test_what_the_command_leaves_behind_is_ended(stage: Stage) -> None:
    """The first process is the command: what it started ends with it, and its pipe is not waited for."""
    stage.runs(CHILD.format(deaf="pass") + "time.sleep(0.1)\nsay(type='text', text='a')\n")
    answer = await stage.answered()
    assert (answer.text, answer.ended, answer.fault) == ("a", False, None)
    pid = await stage.pid("grandchild")
    await until(lambda: not is_running(pid))


async def test_who_left_the_group_holds_nobody_up(stage: Stage) -> None:
    away = CHILD.format(deaf="os.setsid()") + "time.sleep(0.1)\nsay(type='text', text='a')\n"
    stage.runs(away)
    answer = await stage.answered()
    pid = await stage.pid("grandchild")
    os.kill(pid, signal.SIGKILL)
    assert (answer.text, answer.ended) == ("a", False)


async def test_the_end_of_the_provider_ends_what_runs(tmp_path: Path) -> None:
    known: dict[str, Command] = {}
    async with CommandProvider(known) as provider:
        own = Stage(provider, known, tmp_path)
        own.runs(CHILD.format(deaf="signal.signal(signal.SIGTERM, signal.SIG_IGN)") + HANG, grace_s=0.1)
        asking = asyncio.create_task(own.answered())
        pids = [await own.pid(name) for name in ("child", "grandchild")]
        asking.cancel()
        await asyncio.wait([asking])
    assert not any(map(is_running, pids))


async def test_a_cancelled_start_leaves_nothing_behind(stage: Stage) -> None:
    stage.runs(NOTES + "note('child')\n" + HANG)
    for ticks in range(8):
        asking = asyncio.create_task(stage.answered())
        for _ in range(ticks):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
    await until(lambda: not stage.provider._ending)
    noted = stage.folder / "child"
    pid = noted.read_text() if noted.exists() else ""  # it may have been ended before it had written that
    assert not pid or not is_running(int(pid))
