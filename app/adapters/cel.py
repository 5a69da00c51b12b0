"""Callers' expressions in CEL, within limits that keep them from holding the process."""

from __future__ import annotations

import asyncio
import math
import re
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any, Final

import cel

from app.adapters.tools.threads import Threads
from app.ports.expressions import ExpressionFailed

MAX_CHARS: Final = 2_000
MAX_DEPTH: Final = 20
"""Deepest nesting of brackets."""
TIME_LIMIT_S: Final = 0.05
THREADS: Final = 4
REMEMBERED: Final = 256
"""Compiled expressions that are kept."""

_LOOPS: Final = re.compile(r"\.\s*(?:all|exists|exists_one)\s*\(\s*(\w*)")
"""What goes over a list, and its variable; two of them, one in the other, can take any time."""
_COSTLY: Final = re.compile(r"\b(map|filter|matches)\s*\(")
"""Lists that are made anew for each member, and patterns that are compiled for each use: either can hold the
interpreter, and so every other task, for seconds."""
_PREFIXED: Final = re.compile(r"\b[rRbB]{1,2}['\"]")
_STRINGS: Final = re.compile(r"""'{3}.*?'{3}|"{3}.*?"{3}|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)

_FAILURES: Final = (ValueError, TypeError, RuntimeError, LookupError, ArithmeticError)


class Cel:
    """Checks, compiles and evaluates; see `ports.expressions.Expressions`.

    An evaluation runs on a thread of its own pool. One that outlasts its limit is given up; its thread is
    free again when it ends, which the limits on an expression see to.
    """

    def __init__(self, *, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._threads = Threads(THREADS, "expression")
        self._time_limit_s = time_limit_s
        self._compiled: OrderedDict[str, cel.Program] = OrderedDict()

    def fault(self, text: str, variables: Collection[str]) -> str | None:
        """See the port."""
        if len(text) > MAX_CHARS:
            return f"the expression has {len(text)} characters, at most {MAX_CHARS} are taken"
        bare = _STRINGS.sub("''", text)
        if _depth(bare) > MAX_DEPTH:
            return f"brackets are nested more than {MAX_DEPTH} deep"
        if fault := _not_offered(bare):
            return fault
        loops = _LOOPS.findall(bare)
        if len(loops) > 1:
            return "only one of all, exists and exists_one can be used in an expression"
        if shadowed := sorted(set(loops) & set(variables)):
            return f"a loop cannot call its variable {shadowed[0]!r}, which is taken"
        try:
            program = self._program(text)
        except _FAILURES as error:
            return f"this is no CEL expression: {_first_line(error)}"
        strangers = sorted(set(program.variables()) - set(variables) - set(loops))
        if strangers:
            return f"there is no variable {strangers[0]!r}; there are {', '.join(sorted(variables))}"
        return None

    async def evaluate(self, text: str, variables: Mapping[str, Any]) -> Any:
        """See the port."""
        if fault := self.fault(text, variables.keys()):
            raise ExpressionFailed(fault)
        program, given = self._program(text), dict(variables)
        try:
            async with asyncio.timeout(self._time_limit_s):
                return _as_json(await self._threads.run(lambda: program.execute(given)))
        except TimeoutError:
            raise ExpressionFailed(f"no value within {self._time_limit_s * 1000:g} ms") from None
        except _FAILURES as error:
            raise ExpressionFailed(f"{type(error).__name__}: {_first_line(error)}") from None

    def close(self) -> None:
        """Let the threads end."""
        self._threads.close()

    def _program(self, text: str) -> cel.Program:
        program = self._compiled.get(text)
        if program is None:
            program = self._compiled[text] = cel.compile(text)
            if len(self._compiled) > REMEMBERED:
                self._compiled.popitem(last=False)
        return program


def _not_offered(bare: str) -> str | None:
    """What would hide something from the limits, or break them by itself."""
    if "//" in bare or _PREFIXED.search(bare):
        return "comments, raw strings and bytes are not offered"
    if found := _COSTLY.search(bare):
        return f"{found[1]} is not offered; all, exists, exists_one, contains and startsWith are"
    return None


def _as_json(value: Any) -> Any:
    """The value, if JSON has such a thing. Raises `ExpressionFailed`."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list():
            return [_as_json(item) for item in value]
        case dict() if all(isinstance(name, str) for name in value):
            return {name: _as_json(member) for name, member in value.items()}
    raise ExpressionFailed(f"it gives what JSON does not have: {type(value).__name__}")


def _depth(bare: str) -> int:
    depth = deepest = 0
    for character in bare:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]
