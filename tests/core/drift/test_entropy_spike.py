"""Jumbles of characters, and texts that have many different ones by nature."""

from __future__ import annotations

import string
from random import Random

import pytest

from tests.core.drift.watching import CUTS, found, prose

USUAL = prose(4_000)
LONG_USUAL = prose(30_000)


def jumble(letters: str, length: int, space: float = 0.12, seed: int = 7) -> str:
    """Letters by chance, the same for each call with the same seed."""
    chance = Random(seed)
    return "".join(" " if chance.random() < space else chance.choice(letters) for _ in range(length))


def span(*ranges: tuple[int, int]) -> str:
    """All characters from the first of each pair to before the second."""
    return "".join(chr(code) for first, last in ranges for code in range(first, last))


MARKS = string.ascii_letters + string.digits + string.punctuation
KEYS = string.ascii_letters + "+/0123456789"
SCRIPTS = span((0x61, 0x7B), (0x3B1, 0x3CA), (0x430, 0x450), (0x5D0, 0x5EB), (0x4E00, 0x4E40))
HAN = span((0x4E00, 0x5000))
CYRILLIC = "Дождь прошёл, и мы вышли на улицу; съешь ещё этих булок, да выпей чаю, Фёдор Юрьевич Щукин! "

JUMBLES = {
    "marks": USUAL + jumble(MARKS, 600),
    "scripts": USUAL + jumble(SCRIPTS, 600),
    "Latin and Cyrillic": USUAL + jumble(span((0x61, 0x7B), (0x410, 0x450)), 600),
    "Cyrillic and Han": USUAL + jumble(span((0x410, 0x450), (0x4E00, 0x4E40)), 600),
    "after a long answer": LONG_USUAL + jumble(MARKS, 600),
    "goes on": USUAL + jumble(MARKS, 600) + USUAL,
}
BY_NATURE = {
    "usual text": LONG_USUAL,
    "from the beginning": jumble(MARKS, 3_000),
    "too early to know": prose(500) + jumble(MARKS, 600),
    "for a moment": USUAL + jumble(MARKS, 150) + USUAL,
    "encoded data": USUAL + jumble(KEYS, 12_000, 0),
    "a certificate": USUAL + "\n".join(jumble(KEYS, 64, 0, i) for i in range(40)),
    "another language": USUAL + CYRILLIC * 3,
    "Chinese": USUAL + jumble(HAN, 1_500, 0),
    "Chinese about programs": USUAL + "".join(f"{jumble(HAN, 9, 0, i)}Python，" for i in range(90)),
    "greetings of the world": USUAL
    + "Hello, Привет, こんにちは, 안녕하세요, مرحبا, Γειά σου, שלום, नमस्ते, สวัสดี, 你好, Olá, Grüß Gott. " * 5,
    "keys, one a line": USUAL + "".join(f"\n{i}. {jumble(MARKS, 20, 0, i)}" for i in range(60)),
    "the alphabet": USUAL + " ".join(string.ascii_letters + string.digits + string.punctuation) * 3,
    "signs": USUAL + span((0x1F300, 0x1F500)),
    "formulas": USUAL
    + "∀ε>0 ∃δ>0: |x−a|<δ ⇒ |f(x)−f(a)|<ε, ∑ₖ k² = n(n+1)(2n+1)/6, ∮E·dA = Q/ε₀, ∂ρ/∂t = 0. " * 4,
    "code": USUAL + "const q=(a,b)=>a?.[b]??{...a,[b]:!0};for(let i=0;i<9;++i)z[i]^=q(z,i)&0xFF|~i>>>3; " * 6,
}


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", JUMBLES.values(), ids=JUMBLES)
def test_a_jumble(text: str, every: int) -> None:
    assert "entropy_spike" in found(text, every)


@pytest.mark.parametrize("every", CUTS)
@pytest.mark.parametrize("text", BY_NATURE.values(), ids=BY_NATURE)
def test_many_characters_by_nature(text: str, every: int) -> None:
    assert "entropy_spike" not in found(text, every)
