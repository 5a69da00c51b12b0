"""Two small guardrails, and how a module offers its guardrails: a list named `GUARDRAILS`.

Load it with `BRANCHLINE_GUARDRAIL_MODULES=examples.guardrails`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from app.adapters.guardrails.python import Guardrail

_CARD = re.compile(r"\b[0-9](?:[ -]?[0-9]){12,18}\b")


def card_numbers(text: str, final: bool) -> Iterator[dict[str, Any]]:
    """No answer tells what looks like the number of a payment card."""
    for found in _CARD.finditer(text):
        if _adds_up(found.group()):
            yield {"message": "it tells a card number", "position": found.start(), "recoverable": False}


def ends_a_sentence(text: str, final: bool) -> str | None:
    """Answers end as sentences do."""
    return None if text.rstrip().endswith((".", "!", "?")) else "it stops in the middle of a sentence"


def _adds_up(number: str) -> bool:
    """Whether the check digit is right: from the right, every second digit counts twice."""
    digits = [int(digit) for digit in reversed(number) if digit.isdigit()]
    return sum(digits[0::2] + [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]) % 10 == 0


GUARDRAILS = [
    Guardrail("card_numbers", card_numbers, streaming=True, severity="fatal"),
    Guardrail("ends_a_sentence", ends_a_sentence, severity="warning"),
]
