"""Guardrails as a plug-in declares them."""

from __future__ import annotations

from typing import Any

from app.adapters.guardrails.python import Guardrail


def no_shouting(text: str, final: bool) -> Any:
    """Objects to capital letters alone."""
    if text.isupper():
        return {"message": "do not shout", "position": 0}
    return None


async def signed(text: str, final: bool) -> Any:
    """Wants a name at the end."""
    return None if text.endswith("Ada") else {"message": "unsigned", "severity": "warning"}


def out_of_order(text: str, final: bool) -> Any:
    """Always fails."""
    raise RuntimeError("out of order")


GUARDRAILS = [
    Guardrail("no_shouting", no_shouting, streaming=True, description="Not in capitals alone."),
    Guardrail("signed", signed),
    Guardrail("out_of_order", out_of_order),
]
