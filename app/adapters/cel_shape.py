"""What an expression of CEL may look like, so that evaluating it costs next to nothing.

The library that evaluates has no limits of its own: loops inside loops run for minutes, a string doubled by
one loop after another takes all memory, and a pattern may take longer to compile than all the rest. So the
text is measured before it is compiled. It is read as the grammar of CEL reads it, and what the grammar does
not know is refused, so that no loop hides in what only one of the two takes for a string.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from app.adapters.cel_library import cel

MAX_CHARACTERS: Final = 2_000
MAX_DEPTH: Final = 20
"""Levels of the syntax tree: brackets, `.`, operators and `?` count; `&&` and `||` do not, since the library
does not nest them."""
MAX_COMMAS: Final = 64
"""So many elements can be written down, and therefore looped over."""
MAX_SUMS: Final = 30
"""Signs `+`: what a loop goes over may be long texts put together, which it puts together once more."""
MAX_LOOP: Final = 100
"""Characters of what a loop does again and again, its variable included."""
MAX_PATTERNS: Final = 2_000
"""Cost of all patterns together, as `_pattern_cost` has it: some 10 ms for each evaluation, which compiles
them."""

LOOPS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})

_TOKEN = re.compile(
    r"""
      (?P<blank>  [ \t\r\n\f]+ | //[^\n]* )
    | (?P<string> [bB]? (?: [rR] (?: '{3} .*? '{3} | "{3} .*? "{3} | '[^'\r\n]*' | "[^"\r\n]*" )
                      | '{3} (?:[^\\]|\\.)*? '{3}    | "{3} (?:[^\\]|\\.)*? "{3}
                      | ' (?:[^'\\\r\n]|\\.)* '      | " (?:[^"\\\r\n]|\\.)* " ) )
    | (?P<number> (?: 0[xX][0-9a-fA-F]+ | (?:[0-9]+(?:\.[0-9]+)? | \.[0-9]+) (?:[eE][+-]?[0-9]+)? ) [uU]? )
    | (?P<word>   [A-Za-z_][A-Za-z0-9_]* )
    | (?P<sign>   && | \|\| | [<>=!]= | [-+*/%<>!?:.,()\[\]{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_HEAVY: Final = 50
"""What a class of characters costs to compile, in plain characters."""
_DOT: Final = 3
"""The same for `.`."""
_BRACES = re.compile(r"([\w.\]]?)\{([^}]*)")
"""A count, and the end of the letter or the class that it repeats; nothing where that may be a group."""
_CLOSERS: Final = {"(": ")", "[": "]", "{": "}"}


class Unmeasurable(ValueError):
    """The text is no expression that we take; the message says why, and is meant for its author."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int
    """Characters before it."""


@dataclass(slots=True)
class _Level:
    """What stands between two brackets, or outside of all."""

    closer: str
    begins: int
    """Characters before it."""
    loop: bool
    """Whether it is the loop's own."""
    looped: bool
    """Whether it is evaluated again and again."""
    operand: int = 0
    """Depth of the present operand so far."""
    operands: int = 0
    """Depth of the deepest one of the present chain."""
    operators: int = 0
    """Of the present chain; at worst each is a level above that operand."""
    chain: int = 0
    """Depth of the deepest chain of the present element."""
    branches: int = 0
    """Each `?` of the present element; they nest to the right."""
    element: int = 0
    """Depth of the deepest element."""

    def end_operand(self) -> None:
        """An operator follows."""
        self.operands = max(self.operands, self.operand)
        self.operand = 0

    def end_chain(self) -> None:
        """An operand of `&&`, `||` or `?` ends."""
        self.end_operand()
        self.chain = max(self.chain, self.operands + self.operators)
        self.operands = self.operators = 0

    def end_element(self) -> None:
        """A member of a list or an argument ends."""
        self.end_chain()
        self.element = max(self.element, self.chain + self.branches)
        self.chain = self.branches = 0


def loop_variable(text: str) -> str | None:
    """The name that the loop of `text` binds; None where there is no loop.

    Raises `Unmeasurable` when a limit is passed, and for what cannot be measured.
    """
    if len(text) > MAX_CHARACTERS:
        raise Unmeasurable(f"it has {len(text)} characters; at most {MAX_CHARACTERS} are taken")
    tokens = _tokens(text)
    loops = _calls(tokens, LOOPS)
    if len(loops) > 1:
        raise Unmeasurable(f"there is a second loop {_place(tokens[loops[1]])}; one is taken")
    patterns = _calls(tokens, {"matches"})
    if sum(_pattern_cost(tokens, index) for index in patterns) > MAX_PATTERNS:
        raise Unmeasurable("its patterns are too long, or repeat too much by {…}")
    for sign, limit in ((",", MAX_COMMAS), ("+", MAX_SUMS)):
        if sum(token.text == sign for token in tokens) > limit:
            raise Unmeasurable(f"it has more than {limit} times {sign!r}")
    _hold_nesting(tokens, loops, patterns)
    # Loops that lack their variable are left to the library, which refuses them.
    return tokens[loops[0] + 2].text if loops and loops[0] + 2 < len(tokens) else None


def spelled(text: str, names: Mapping[str, str]) -> str:
    """The expression with its variables of these names under others; members after a dot keep theirs.

    Raises `Unmeasurable` for what has no tokens.
    """
    if not any(name in text for name in names):
        return text
    pieces: list[str] = []
    done, before = 0, ""
    for token in _tokens(text):
        if token.kind == "word" and before != "." and token.text in names:
            pieces += [text[done : token.at], names[token.text]]
            done = token.at + len(token.text)
        before = token.text
    return "".join([*pieces, text[done:]])


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unmeasurable(f"{text[at]!r} at character {at + 1} belongs to no word or sign")
        kind = "sign" if match.group() == "in" else str(match.lastgroup)
        if kind != "blank":
            found.append(_Token(kind, match.group(), at))
        at = match.end()
    return found


def _calls(tokens: list[_Token], names: Collection[str]) -> list[int]:
    """Where one of these functions is called, as an index of tokens."""
    return [
        index
        for index, (token, following) in enumerate(pairwise(tokens))
        if token.kind == "word" and token.text in names and following.text == "("
    ]


def _pattern_cost(tokens: list[_Token], index: int) -> int:
    """What it costs to compile the pattern of a `matches`, and to look for it in the text of a variable.

    An escape or a class may stand for hundreds of states; a count in braces repeats what stands before it,
    which may be a group, and everything.
    """
    receiver = index - 2
    while receiver > 1 and tokens[receiver].kind == "word" and tokens[receiver - 1].text == ".":
        receiver -= 2
    if receiver < 0 or tokens[receiver].kind == "sign":
        raise Unmeasurable(f"`matches` {_place(tokens[index])} needs a variable before its dot")
    call = tokens[index + 2 : index + 4]
    if [token.kind for token in call] != ["string", "sign"] or call[1].text != ")":
        raise Unmeasurable(f"`matches` {_place(tokens[index])} needs a pattern that is one string")
    try:
        pattern = str(cel.compile(call[0].text).execute())  # its escapes may hide braces
    except ValueError:
        return 0  # which the whole cannot be compiled with either
    classes = pattern.count("\\") + pattern.count("[")
    cost, factor = len(pattern) + _HEAVY * classes + _DOT * pattern.count("."), 1
    for braces in _BRACES.finditer(pattern):
        count = max([1, *map(int, re.findall("[0-9]{1,9}", braces[2]))])
        if braces[1]:
            cost += _HEAVY * count
        else:
            factor *= count
    return cost * factor


def _hold_nesting(tokens: list[_Token], loops: list[int], patterns: list[int]) -> None:
    """Refuse brackets that do not match, what is too deep, and loops that do much."""
    levels = [_Level("", 0, loop=False, looped=False)]
    for index, token in enumerate(tokens):
        level = levels[-1]
        if token.kind != "sign":
            if level.looped and index in patterns:
                raise Unmeasurable(f"`matches` {_place(token)} would be called in a loop")
        elif token.text in _CLOSERS:
            level.operand += token.text == "["
            loop = index - 1 in loops
            levels.append(_Level(_CLOSERS[token.text], token.at, loop, level.looped or loop))
        elif token.text == level.closer:
            levels.pop()
            level.end_element()
            if level.loop and token.at - level.begins > MAX_LOOP + 1:
                raise Unmeasurable(f"the loop's body has more than {MAX_LOOP} characters")
            levels[-1].operand = max(levels[-1].operand, level.element + 1)
        elif token.text in _CLOSERS.values():
            raise Unmeasurable(f"there is no bracket that {token.text!r} {_place(token)} closes")
        else:
            _count(level, token.text)
    if len(levels) > 1:
        raise Unmeasurable(f"a {levels[-1].closer!r} is missing at its end")
    levels[0].end_element()
    if levels[0].element > MAX_DEPTH:
        raise Unmeasurable(f"it is nested or chained more than {MAX_DEPTH} levels deep")


def _count(level: _Level, sign: str) -> None:
    match sign:
        case ".":
            level.operand += 1
        case ",":
            level.end_element()
        case "&&" | "||" | ":":
            level.end_chain()
        case "?":
            level.end_chain()
            level.branches += 1
        case _:
            level.end_operand()
            level.operators += 1


def _place(token: _Token) -> str:
    return f"at character {token.at + 1}"
