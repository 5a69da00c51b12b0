"""A plug-in of pytest: a run of the whole suite fails if one that a page of docs/ names did not pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest

from tests.support.named_tests import named

CHOICES: Final = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "collectonly", "stepwise")
"""Options with which only a part of the suite is run."""


class Ran:
    """Which tests passed, by name without parameters."""

    def __init__(self) -> None:
        self._passed: set[str] = set()
        self._skipped: set[str] = set()

    def hear(self, nodeid: str, when: str | None, outcome: str) -> None:
        """One phase of one test; an expected failure counts as skipped, as pytest has it."""
        name = nodeid.partition("[")[0]
        if outcome == "skipped":
            self._skipped.add(name)
        elif when == "call" and outcome == "passed":
            self._passed.add(name)

    def missing(self, named: Iterable[str]) -> list[str]:
        """Those that did not pass, or not with all their parameters."""
        return sorted(set(named) - (self._passed - self._skipped))


class Watch:
    """Hears of every test, those of other processes too, and speaks at the end."""

    def __init__(self) -> None:
        self._ran = Ran()
        self._missing: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test is over."""
        self._ran.hear(report.nodeid, report.when, report.outcome)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Everything has run; what failed is told already."""
        if exitstatus == pytest.ExitCode.OK:
            self._missing = {page: self._ran.missing(tests) for page, tests in named().items()}
        if any(self._missing.values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which."""
        for page, missing in self._missing.items():
            if missing:
                terminalreporter.section(f"named in {page}, and not run", red=True)
                for name in missing:
                    terminalreporter.line(name)


def pytest_configure(config: pytest.Config) -> None:
    """Watch the process that the user started, if it was asked for everything."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    part = any(config.getoption(name, None) for name in CHOICES)
    if whole and not part and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Watch(), "named-tests-watch")
