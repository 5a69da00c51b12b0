"""Write the pages of docs/ that are made from the code: `python -m tests.support.docs`.

A page is a function that gives its text, listed in `PAGES`; tests/architecture/test_docs.py compares
each with its file. To add one, write the function and its line in `PAGES`, then run the command.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import app.wiring  # noqa: F401  a refusal is listed once its module is imported
from app.adapters.command_model.settings import CommandSettings
from app.api.errors import as_markdown as errors_as_markdown
from app.api.event_schemas import event_schemas
from app.core.events import event_types
from app.core.events.base import Event, camel
from app.core.lifecycle.delays import Strategy
from app.core.lifecycle.faults import TROUBLES
from app.core.lifecycle.table import EDGES, State, as_mermaid
from app.settings import PREFIX, McpServerSettings, ModelSettings, Settings
from tests.support import case_rows, conformance
from tests.support.markdown import table
from tests.support.walks import UNWALKED, walked_by

DATA = Path(__file__).resolve().parents[1] / "data"
DOCS = Path(__file__).resolve().parents[2] / "docs"

NOTICE = "<!-- Made from the code by `python -m tests.support.docs`; do not edit. -->"


def said_of(cls: type) -> dict[str, str]:
    """The docstrings that stand under the attributes of a class, by attribute."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = tree.body[0].body  # type: ignore[attr-defined]
    said: dict[str, str] = {}
    for above, below in pairwise(body):
        match above, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                said[name] = " ".join(text.split())
    return said


def doc(thing: Any) -> str:
    """A docstring as one line."""
    return " ".join((inspect.getdoc(thing) or "").split())


def transitions() -> str:
    """The table of transitions, and what walks each of them."""
    walked = walked_by()
    rows = []
    for edge in EDGES:
        pair = (edge.source.value, edge.target.value)
        by = walked[pair] if pair in walked else f"(none: {UNWALKED[pair]})"
        rows.append([f"`{edge.source}`", f"`{edge.target}`", edge.when, by])
    told = f"Scripts of `tests/support/walks.py` walk {len(walked)} of {len(EDGES)}; the others say why not."
    return f"{table(['From', 'To', 'When', 'Walked by'], rows)}\n\n{told}"


def lifecycle() -> str:
    """docs/lifecycle.md"""
    states, strategies = said_of(State), said_of(Strategy)
    return f"""{NOTICE}
# The lifecycle of a model stream

A run asks models through streams. One stream is one session: it asks the primary model, asks it again
after a fault where that may help, falls back to the next model where it does not, and ends with an
answer or an error. A pure state machine (`app/core/lifecycle/`) decides all of it: it is fed what
happens, one input at a time with the time at which it happened, and gives back what is to be done,
events to be recorded among it. The same inputs always give the same effects. What each event says
stands in [events.md](events.md).

## States

{table(["State", "Meaning"], ([f"`{state}`", states[state.name]] for state in State))}

## Transitions

There are no others: one that is not listed is a bug, raises, and changes nothing.

{transitions()}

```mermaid
{as_mermaid()}
```

## Faults

A fault is classified by where it came from, then by its HTTP status, then by its type, and only where
it has none of these by its text. `max_retries` limits all retries of one model's stream, `attempts`
those after faults of the answer itself; both begin anew on a fallback. Where neither a retry nor a
fallback is left, the run ends under the fault's code, or under `ALL_STREAMS_EXHAUSTED` when a fallback
was tried and has failed too.

{_faults()}

## Pauses before a retry

n counts the retries already made. A server that asks for a longer pause (`Retry-After`) is heard, up to
a limit. A fallback waits for nothing.

{table(["`strategy`", "Pause"], ([f"`{kind}`", strategies[kind.name]] for kind in Strategy))}
"""


def _faults() -> str:
    def yes(is_so: bool) -> str:
        return "yes" if is_so else "no"

    return table(
        [
            "Fault",
            "`code`",
            "`category`",
            "`failureType`",
            "Reason of a retry",
            "Spends",
            "Retry",
            "Fallback",
        ],
        (
            [
                row.what,
                f"`{row.code}`",
                row.category,
                row.failure_type,
                row.reason or "–",
                row.spends.value,
                yes(row.retryable),
                yes(row.fallback),
            ]
            for row in TROUBLES
        ),
    )


def events() -> str:
    """docs/events.md"""
    families: dict[str, list[type[Event]]] = {}
    for kind in sorted(event_types().values(), key=lambda kind: kind.code):
        families.setdefault(kind.family, []).append(kind)
    return f"""{NOTICE}
# Events

Every fact about a run is one event. On the wire it has `seq` (per run, from 1, without gaps), `ts`
(milliseconds since the epoch), `type`, `run_id`, `branch_id`, `stream_id`, `attempt`, `fallback_index`,
`context` (the caller's), `meta` (below) and `callbacks`: those that fire directly after it, in order.
Events of the run itself belong to no stream. Lengths and offsets count Unicode code points.

A client that joins the `text` of all TOKEN events of a stream, and cuts what it has at every `contentOffset`,
always holds the right text.

{"".join(_family(kinds) for kinds in families.values())}"""


def _family(kinds: list[type[Event]]) -> str:
    about = doc(inspect.getmodule(kinds[0])).partition(";")[0].rpartition(" (")[0] or kinds[0].family
    return f"## {about}\n\n" + "".join(_event(kind) for kind in kinds)


def _event(kind: type[Event]) -> str:
    said = said_of(kind)
    rows = [
        [
            f"`{camel(field.name)}`",
            _type(str(field.type), field.default is not MISSING),
            said.get(field.name, ""),
        ]
        for field in fields(kind)  # type: ignore[arg-type]
    ]
    text = f"### {kind.type}\n\n{doc(kind)}\n\n"
    if rows:
        text += table(["Field", "Type", "Meaning"], rows) + "\n\n"
    return text + f"```json\n{json.dumps(_example(kind), ensure_ascii=False)}\n```\n\n"


def _example(kind: type[Event]) -> Any:
    """The event's `type` and `meta` as a golden flow has them; where none has, as OpenAPI does."""
    made = event_schemas()[kind.__name__ + "Event"]["examples"][0]["meta"]
    for meta in _in_flows(kind.type):
        known = {name: value for name, value in meta.items() if value != "*"}
        return {"type": kind.type, "meta": {**made, **known}}
    return {"type": kind.type, "meta": made}


def _in_flows(name: str) -> Iterator[Mapping[str, Any]]:
    """The metas that the golden flows give a type, the fullest first."""
    found: list[Mapping[str, Any]] = []

    def look(value: Any) -> None:
        match value:
            case [str(kind), dict(meta)] if kind == name:
                found.append(meta)
            case list():
                for member in value:
                    look(member)
            case dict():
                for member in value.values():
                    look(member)

    for page in sorted(DATA.glob("*flows.json")):
        look(json.loads(page.read_text("utf-8")))
    return iter(sorted(found, key=len, reverse=True))


_TYPES: Mapping[str, str] = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "Any": "any",
    "dict[str, Any]": "object",
    "list[str]": "array of strings",
    "list[list[int]]": "array of arrays of integers",
    "list[dict[str, Any]]": "array of objects",
    "dict[str, str]": "object of strings",
    "dict[str, float]": "object of numbers",
    "TextRef": "string or null",
}


def _type(annotation: str, optional: bool) -> str:
    plain = annotation.removesuffix(" | None")
    nullable = plain != annotation
    return _TYPES[plain] + (", optional" if optional else " or null" if nullable else "")


def settings() -> str:
    """docs/settings.md"""
    return f"""{NOTICE}
# Settings

Read once at start, from the environment and from the file `branchline.toml` in the working directory (or
the one that `BRANCHLINE_CONFIG` names). The environment wins. In the file a setting has its name, in the
environment `{PREFIX}` and the name in capitals; only the database's address is `DATABASE_URL` there and
`database_url` in the file. A setting that does not exist is refused, and so is a value that makes no sense.
In the environment lists are separated by commas, and objects are JSON. On the command line `--host`,
`--port` and `--data-dir` go before both. `branchline doctor` prints what is in effect.

{table(["Setting", "Default", "Meaning"], _settings(Settings))}

A model under `models`:

{table(["Member", "Default", "Meaning"], _settings(ModelSettings))}

A [command](how-to/use-a-command-as-a-model.md) under `models.NAME.command`:

{table(["Member", "Default", "Meaning"], _settings(CommandSettings))}

A server in `mcp_servers` ([how](how-to/use-mcp-servers.md)):

{table(["Member", "Default", "Meaning"], _settings(McpServerSettings))}
"""


_Parts = type[Settings] | type[ModelSettings] | type[CommandSettings] | type[McpServerSettings]


def _settings(cls: _Parts) -> Iterable[list[str]]:
    said = said_of(cls)
    for name, field in cls.model_fields.items():
        alias = field.validation_alias
        shown = f"`{alias if isinstance(alias, str) else name}`"
        yield [shown, _default(field.get_default(call_default_factory=True)), _meaning(field, said[name])]


def _default(value: Any) -> str:
    match value:
        case None | () | {}:
            return "–"
        case _ if value is PydanticUndefined:
            return "has to be given"
        case BaseModel():
            return ", ".join(f"`{name}` {said}" for name, said in value)
        case _:
            return f"`{value}`"


def _meaning(field: FieldInfo, said: str) -> str:
    notes = [said]
    if get_origin(field.annotation) is Literal:
        notes.append("One of " + ", ".join(f"`{choice}`" for choice in get_args(field.annotation)) + ".")
    for bound in field.metadata:
        match bound:
            case annotated_types.Ge(ge=least):
                notes.append(f"At least {least}.")
            case annotated_types.Le(le=most):
                notes.append(f"At most {most}.")
            case annotated_types.MinLen(min_length=least):
                notes.append(f"At least {least} characters.")
    return " ".join(notes)


def errors() -> str:
    """docs/errors.md"""
    return f"{NOTICE}\n{errors_as_markdown()}"


PAGES: Mapping[str, Callable[[], str]] = {
    "cases.md": lambda: case_rows.page(NOTICE),
    "conformance.md": lambda: conformance.page(NOTICE),
    "errors.md": errors,
    "events.md": events,
    "lifecycle.md": lifecycle,
    "settings.md": settings,
}
"""Files in docs/ and what belongs in them."""


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
