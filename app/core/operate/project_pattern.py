"""Regular expressions that can become part of a grammar."""

from __future__ import annotations

import re

MAX_CHARACTERS = 200
MAX_REPEATS = 500

_CLASSES = {r"\d": "0-9", r"\w": "A-Za-z0-9_", r"\s": " "}
_TOKEN = re.compile(
    r"""
      (?P<escape> \\ [\\.\-\[\]()*+?{}|^$/dws] )
    | (?P<repeat> \{ (?P<least>\d+) (?P<comma>,)? (?P<most>\d*) \} | [*+?] )
    | (?P<group>  \( (?: \?: )? )
    | (?P<other>  [)|.] )
    | (?P<class>  \[ \^? (?: \\ [\\.\-\[\]^$/dws] | [ !#-Z^-~] )+ \] )
    | (?P<plain>  [ !#%-'\-,:;<=>@A-Za-z0-9_/`~&] )
    """,
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def fit_pattern(pattern: str) -> str | None:
    r"""The same pattern in the engine's dialect, or None if it has no equal there.

    It must be anchored at both ends and keep to ASCII. `\d`, `\w`, `\s` become ranges (`\s` a space), which
    the engine takes for letters; what it would misread, such as look-ahead or lazy repeats, has no equal.
    """
    if not 2 <= len(pattern) <= MAX_CHARACTERS or pattern[0] != "^" or pattern[-1] != "$":
        return None
    body, at, fitted, repeats = pattern[1:-1], 0, "", True
    while at < len(body):
        token = _TOKEN.match(body, at)
        if token is None:
            return None
        if token["repeat"] and (repeats or not _sane(token)):
            return None
        fitted += _rendered(token)
        repeats = bool(token["repeat"] or token["group"] or token[0] == "|")
        at = token.end()
    try:
        re.compile(fitted)
    except re.error:
        return None
    return f"^{fitted}$"


def _sane(token: re.Match[str]) -> bool:
    numbers = [int(number) for number in (token["least"], token["most"]) if number]
    return all(number <= MAX_REPEATS for number in numbers) and numbers == sorted(numbers)


def _rendered(token: re.Match[str]) -> str:
    if token["escape"]:
        return _escape(token[0], "[{}]")
    if token["class"]:
        return _ESCAPED.sub(lambda escaped: _escape(escaped[0], "{}"), token[0])
    return token[0]


def _escape(escaped: str, form: str) -> str:
    if escaped in _CLASSES:
        return form.format(_CLASSES[escaped])
    return "/" if escaped == r"\/" else escaped
