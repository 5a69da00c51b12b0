"""Callers' expressions in CEL, evaluated at once, since their shape bounds what they cost."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final

from app.adapters.cel_library import cel
from app.adapters.cel_shape import Unmeasurable, loop_variable, spelled
from app.core.json_text import dumps, is_storable
from app.ports.expressions import ExpressionFailed

LIMIT_S: Final = 0.05
"""Seconds of processor that one evaluation may take."""
MAX_RESULT: Final = 4_096
"""Bytes of JSON that a value may have; values are kept in the log."""
REMEMBERED: Final = 256
"""Compiled expressions that are kept."""

_MESSAGE_CHARACTERS: Final = 200
_FUNCTIONS: Final = frozenset(
    {
        *("contains", "endsWith", "matches", "size", "startsWith"),
        *("bytes", "double", "dyn", "duration", "int", "string", "timestamp", "type", "uint"),
        *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours"),
        *("getMilliseconds", "getMinutes", "getMonth", "getSeconds"),
    }
)
"""Those of the language's own that the library has."""
_TYPES: Final = frozenset(
    {"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"}
)
"""Names with a meaning of their own, to be compared with what `type` gives."""
_SPELLED: Final[Mapping[str, str]] = {"function": "function_"}
"""Names of variables that the language reserves, and how they are written for it."""
_MEANT: Final[Mapping[str, str]] = {spelled: name for name, spelled in _SPELLED.items()}


class Cel:
    """Checks, compiles and evaluates; see `ports.expressions.Expressions`.

    Evaluation happens where it is asked for, and not in a thread: the library holds the interpreter's lock
    from the beginning to the end, so a thread would keep everybody waiting as well and could not be given
    up. What keeps the wait short are the limits of `cel_shape`, before anything is compiled: 20 µs is
    usual, and the worst known takes some 20 ms with texts of 1,000 characters. A value that took more than
    `limit_s` nevertheless is refused.
    """

    def __init__(self, *, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._program = lru_cache(REMEMBERED)(_compiled)

    def fault(self, text: str, variables: Collection[str]) -> str | None:
        """See the port."""
        try:
            program, bound = self._program(text)
        except Unmeasurable as refused:
            return str(refused)
        known = {_SPELLED.get(name, name) for name in variables}
        if unknown := set(program.variables()) - known - _TYPES - {bound}:
            name = min(_MEANT.get(name, name) for name in unknown)
            return f"there is no variable {name!r}; there are {', '.join(sorted(variables))}"
        # Operators are listed too, as `_+_`, `@in` and the like.
        named = {name for name in program.functions() if name.isidentifier() and not name.startswith("_")}
        if unknown := named - _FUNCTIONS:
            return f"there is no function {min(unknown)!r}"
        return None

    async def evaluate(self, text: str, variables: Mapping[str, Any]) -> Any:
        """See the port."""
        if fault := self.fault(text, variables.keys()):
            raise ExpressionFailed(fault)
        began = time.thread_time()
        value = _plain(_executed(self._program(text)[0], variables))
        if len(dumps(value)) > MAX_RESULT:
            raise ExpressionFailed(f"its value has more than {MAX_RESULT} bytes of JSON")
        if time.thread_time() - began > self._limit_s:
            raise ExpressionFailed(f"it takes longer than {self._limit_s * 1000:g} ms")
        return value


def _compiled(text: str) -> tuple[cel.Program, str | None]:
    """The program, and the variable of its loop. Raises `Unmeasurable`."""
    bound = loop_variable(text)
    try:
        return cel.compile(spelled(text, _SPELLED)), bound
    except ValueError as error:
        _, _, complaint = str(error).partition("ERROR: <input>:")
        raise Unmeasurable(_short(f"this is no CEL expression: it cannot be read at {complaint}")) from None


def _executed(program: cel.Program, variables: Mapping[str, Any]) -> Any:
    try:
        return program.execute({_SPELLED.get(name, name): value for name, value in variables.items()})
    except KeyError as missing:
        raise ExpressionFailed(f"there is no {missing.args[0]!r}"[:_MESSAGE_CHARACTERS]) from None
    except Exception as failure:
        raise ExpressionFailed(_short(str(failure))) from None


def _plain(value: Any) -> Any:
    """The value as JSON has it. Raises `ExpressionFailed` for what it has not."""
    match value:
        case None | bool() | int():
            return value
        case str() if is_storable(value):
            return value
        case float() if math.isfinite(value):
            return value
        case list():
            return [_plain(element) for element in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {_plain(key): _plain(member) for key, member in value.items()}
        case str():
            raise ExpressionFailed("its value is a text with a NUL character")
        case float():
            raise ExpressionFailed(f"its value is {value}, which is no number in JSON")
        case dict():
            raise ExpressionFailed("its value is a map with keys that are no strings")
        case _:
            raise ExpressionFailed(f"its value is no JSON, but of the type {type(value).__name__}")


def _short(message: str) -> str:
    """The first sentence, or what fits."""
    first = message.partition("\n")[0].partition(": the operation")[0].partition(". ")[0]
    return first if len(first) <= _MESSAGE_CHARACTERS else first[: _MESSAGE_CHARACTERS - 1] + "…"
