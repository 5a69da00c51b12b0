"""The tool that the measured service offers: as little as a tool can do."""

from __future__ import annotations

from app.adapters.tools.python import Tool


def bench_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


TOOLS = [Tool("bench_add", bench_add, inline=True)]
