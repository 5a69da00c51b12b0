"""Two small tools, and how a module offers its tools: a list named `TOOLS`.

Load it with `BRANCHLINE_TOOL_MODULES=examples.tools`.
"""

from __future__ import annotations

from typing import Any

from app.adapters.tools.python import Tool

_REPORTS: dict[str, dict[str, Any]] = {
    "berlin": {"celsius": 11, "sky": "cloudy"},
    "lisbon": {"celsius": 19, "sky": "clear"},
    "oslo": {"celsius": 4, "sky": "snow"},
}


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def weather(city: str) -> dict[str, Any]:
    """Tell the weather of a city: its temperature in °C and its sky."""
    report = _REPORTS.get(city.strip().lower())
    if report is None:
        raise LookupError(f"no report for {city!r}; there are some for {', '.join(sorted(_REPORTS))}")
    return {"city": city, **report}


TOOLS = [Tool("add", add, idempotent=True, inline=True), weather]
