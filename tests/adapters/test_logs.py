"""Log lines as they are written."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import logging, structlog
from app.adapters.logs import configure_logs
configure_logs(form={form!r}, level="info")
structlog.get_logger().info("hello", number=1, thing={{1: object}})
structlog.get_logger().debug("not this")
logging.getLogger("uvicorn.error").warning("foreign %s", "words")
logging.getLogger("uvicorn.access").info("not this")
try:
    password = "hidden" + " value"
    1 / 0
except ZeroDivisionError:
    structlog.get_logger().exception("bad")
    logging.getLogger("library").exception("worse")
"""


def lines(form: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(form=form)], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_each_line_is_one_json_object() -> None:
    found = [json.loads(line) for line in lines("json")]
    assert [line["event"] for line in found] == ["hello", "foreign words", "bad", "worse"]
    assert [line["level"] for line in found] == ["info", "warning", "error", "error"]
    assert all("ZeroDivisionError" in line["exception"] for line in found[2:])
    assert found[0]["number"] == 1


@pytest.mark.parametrize("form", ["json", "text"])
def test_tracebacks_show_no_values_of_variables(form: str) -> None:
    assert "hidden value" not in "\n".join(lines(form))
