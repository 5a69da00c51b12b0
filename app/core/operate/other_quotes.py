"""Read what is JSON but for its quotes and words: Python's way to write a value, or a typesetter's quotes."""

from __future__ import annotations

import re
from typing import Final

# A quote that does not close on its line ends the try: there is no telling where its text was meant to end.
_TOKEN = re.compile(
    r"""(?P<json>"(?:[^"\\\n]|\\.)*+")"""
    r"""|(?P<single>'(?:[^'\\\n]|\\.)*+')"""
    r"""|“(?P<typeset>[^“”\n]*+)”"""
    r"""|\b(?P<word>True|False|None)\b"""
    r"""|(?P<comma>,(?=\s*+[}\]]))"""
    r"""|(?P<bad>["'“”])"""
    r"""|[^"'“”TFN,]++|.""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)|\"", re.DOTALL)
_WORDS: Final = {"True": "true", "False": "false", "None": "null"}
_CORRECTIONS: Final = {
    "single": "quotes",
    "typeset": "quotes",
    "word": "python_words",
    "comma": "trailing_comma",
}


def in_json_quotes(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The text with JSON's own quotes and words, and the names of what was changed; None when nothing was.

    Only what delimits a string is changed, never what stands in one. Whether the outcome is JSON is for a
    JSON parser to say: a quote in the wrong place leaves something that is not.
    """
    out: list[str] = []
    made: dict[str, None] = {}
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "bad":
            return None
        if kind in _CORRECTIONS:
            made[_CORRECTIONS[kind]] = None
        match kind:
            case "single":
                out.append(_requoted(token["single"][1:-1]))
            case "typeset":
                out.append(_requoted(token["typeset"]))
            case "word":
                out.append(_WORDS[token["word"]])
            case "comma":
                pass
            case _:
                out.append(token.group())
    return ("".join(out), tuple(made)) if made.keys() - {"trailing_comma"} else None


def _requoted(inside: str) -> str:
    """A string in JSON's quotes; its escapes are JSON's, but for `\\'`."""
    return '"' + _ESCAPE.sub(lambda escape: _escaped(escape[0]), inside) + '"'


def _escaped(escape: str) -> str:
    if escape == '"':
        return '\\"'
    return "'" if escape == "\\'" else escape
