"""bin/setup, with a stand-in for Python that records what it is asked to do and installs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

STAND_IN = """\
#!/usr/bin/env bash
echo "$*" >>"$RECORD"
case "$*" in
    "-c import sys"*) [ -z "${TOO_OLD:-}" ] ;;
    "-c import venv"*) [ -z "${NO_VENV:-}" ] ;;
    "-V") echo "Python 3.99" ;;
    "-m venv --clear "*)
        cp "$0" "$RECORD.python"
        rm -rf "$4"
        mkdir -p "$4/bin"
        mv "$RECORD.python" "$4/bin/python"
        touch "$4/pyvenv.cfg"
        ;;
    "-m pip "*" --require-hashes "*)
        [ -z "${NO_NETWORK:-}" ] || exit 1
        [ -z "${SLOW:-}" ] || sleep 0.5
        while [ "$#" -gt 1 ]; do
            [ "$1" != --target ] || mkdir "$2"
            shift
        done
        ;;
esac
"""
TOOLS = ["bash", "env", "cat", "cut", "dirname", "grep", "ls", "mkdir", "mv", "rm", "sha256sum", "sleep"]
TOOLS += ["touch", "cp"]


class Checkout:
    """A copy of what bin/setup reads, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder.parent / "record"
        self.python = folder.parent / "python"
        (folder / "bin").mkdir(parents=True)
        shutil.copy(ROOT / "bin" / "setup", folder / "bin" / "setup")
        shutil.copytree(ROOT / "requirements", folder / "requirements")
        shutil.copy(ROOT / "pyproject.toml", folder)
        self.python.write_text(STAND_IN)
        self.python.chmod(0o755)

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "RECORD": str(self.record),
            "PYTHON": str(self.python),
            **variables,
        }
        return subprocess.Popen(
            [self.folder / "bin" / "setup", *arguments], env=environment, stderr=subprocess.PIPE, text=True
        )

    def setup(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """The exit status and what was said."""
        process = self.start(*arguments, **variables)
        _, said = process.communicate()
        return process.returncode, said

    def done(self) -> list[str]:
        """What was installed or made since the last call, in order."""
        words = {
            "-m venv": "environment",
            "requirements/runtime.txt": "runtime",
            "requirements/dev.txt": "dev",
            "requirements/weights.txt": "weights",
            "--editable": "branchline",
        }
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        self.record.unlink(missing_ok=True)
        return [name for line in lines for word, name in words.items() if word in line]


def without_flock(folder: Path) -> str:
    """A PATH with all that bin/setup needs but flock, which some systems lack."""
    tools = folder / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found
        (tools / name).symlink_to(found)
    return str(tools)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


ALL = ["environment", "runtime", "weights", "branchline"]


def test_the_first_call_does_everything_and_the_second_nothing(checkout: Checkout) -> None:
    status, said = checkout.setup("runtime")
    assert status == 0
    assert checkout.done() == ALL
    assert len(said.splitlines()) == 4, "a line for every slow step, and the end"
    assert checkout.setup("runtime") == (0, "")
    assert checkout.done() == []


def test_dev_holds_runtime_but_not_the_other_way_round(checkout: Checkout) -> None:
    checkout.setup("runtime")
    checkout.done()
    checkout.setup("dev")
    assert checkout.done() == ["dev", "branchline"]
    checkout.setup("runtime")
    assert checkout.done() == []


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("requirements/runtime.txt", ["runtime", "branchline"]),
        ("pyproject.toml", ["runtime", "branchline"]),
        ("requirements/weights.txt", ["runtime", "weights", "branchline"]),
    ],
)
def test_a_change_is_followed_in_the_same_environment(
    checkout: Checkout, changed: str, again: list[str]
) -> None:
    checkout.setup("runtime")
    checkout.done()
    with (checkout.folder / changed).open("a") as file:
        file.write("# changed\n")
    assert checkout.setup("runtime")[0] == 0
    assert checkout.done() == again


def test_an_interrupted_setup_is_not_taken_for_done(checkout: Checkout) -> None:
    status, said = checkout.setup("runtime", NO_NETWORK="1")
    assert status == 1
    assert "package index reachable" in said
    assert checkout.done() == ["environment", "runtime"]
    assert not list((checkout.folder / ".venv").glob(".stamp*"))
    assert checkout.setup("runtime")[0] == 0
    assert checkout.done() == ["runtime", "weights", "branchline"]


def test_a_failed_change_takes_the_stamp_of_the_other_kind_away(checkout: Checkout) -> None:
    checkout.setup("runtime")
    checkout.setup("dev", NO_NETWORK="1")
    checkout.done()
    checkout.setup("runtime")
    assert checkout.done() == ["runtime", "branchline"]


@pytest.mark.parametrize("broken", ["bin/python", ".place"])
def test_a_half_made_environment_is_made_anew(checkout: Checkout, broken: str) -> None:
    checkout.setup("runtime")
    checkout.done()
    (checkout.folder / ".venv" / broken).unlink()
    for stamp in (checkout.folder / ".venv").glob(".stamp*"):
        stamp.unlink()
    assert checkout.setup("runtime")[0] == 0
    assert checkout.done() == ALL


def test_a_moved_checkout_gets_a_new_environment(checkout: Checkout) -> None:
    checkout.setup("runtime")
    checkout.done()
    moved = checkout.folder.rename(checkout.folder.parent / "elsewhere")
    checkout.folder = moved
    assert checkout.setup("runtime")[0] == 0
    assert checkout.done() == ALL


def test_the_environment_may_be_elsewhere(checkout: Checkout, tmp_path: Path) -> None:
    assert checkout.setup("runtime", VENV=str(tmp_path / "other"))[0] == 0
    assert (tmp_path / "other" / ".stamp-runtime").exists()
    assert not (checkout.folder / ".venv").exists()


def test_a_folder_that_is_no_environment_is_left_alone(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    status, said = checkout.setup("runtime", VENV=str(tmp_path / "mine"))
    assert status == 1
    assert "no virtual environment" in said
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"TOO_OLD": "1"}, "Python 3.11 or newer"),
        ({"PYTHON": "no-such-python"}, "Python 3.11 or newer"),
        ({"NO_VENV": "1"}, "apt-get install python3-venv"),
    ],
)
def test_what_is_missing_is_named(checkout: Checkout, variables: dict[str, str], word: str) -> None:
    status, said = checkout.setup("runtime", **variables)
    assert status == 1
    assert word in said
    assert checkout.done() == []


def test_an_unknown_kind_is_refused(checkout: Checkout) -> None:
    status, said = checkout.setup("production")
    assert status == 1
    assert "runtime|dev" in said


@pytest.mark.parametrize("with_flock", [True, False])
def test_two_at_once_do_it_once(checkout: Checkout, with_flock: bool, tmp_path: Path) -> None:
    variables = {"SLOW": "1"}
    if not with_flock:
        variables["PATH"] = without_flock(tmp_path)
    both = [checkout.start("runtime", **variables) for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert checkout.done() == ALL
    assert sum("waiting for another" in words for words in said) == 1
    assert not (checkout.folder / ".venv.lock").exists()


def test_a_lock_of_a_killed_setup_is_taken_over(checkout: Checkout, tmp_path: Path) -> None:
    lock = checkout.folder / ".venv.lock"
    lock.mkdir()
    (lock / "pid").write_text("999999999")
    assert checkout.setup("runtime", PATH=without_flock(tmp_path))[0] == 0
    assert not lock.exists()


def test_an_environment_behind_a_link_is_left_alone(checkout: Checkout, tmp_path: Path) -> None:
    """It may be another checkout's."""
    other = Checkout(tmp_path / "other")
    other.setup("runtime")
    other.done()
    (checkout.folder / ".venv").symlink_to(other.folder / ".venv")
    status, said = checkout.setup("runtime")
    assert (status, checkout.done()) == (1, [])
    assert "is a link" in said
    assert (other.folder / ".venv" / "bin" / "python").exists()
