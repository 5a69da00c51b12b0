"""Load the plug-ins of this installation, or say in one line which of them cannot be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.adapters.guardrails.python import Guardrail, load_guardrails
from app.adapters.handlers.declare import Method
from app.adapters.handlers.load import load_handlers
from app.adapters.plugins import BadPlugin
from app.adapters.tools.load import load_tools
from app.adapters.tools.python import PythonTools
from app.core.guardrails.presets import built_in_rules
from app.settings import BadSettings, Settings


@dataclass(frozen=True, slots=True)
class Plugins:
    """What entry points and the modules of the settings declare."""

    tools: PythonTools
    """To be closed."""
    guardrails: Sequence[Guardrail]
    handlers: Sequence[tuple[str, Mapping[str, Method]]]
    """A name for logs, and the callbacks of each."""


def load_all(settings: Settings) -> Plugins:
    """Raises BadSettings for one that cannot be loaded, and for a guardrail with a built-in rule's name."""
    try:
        found = Plugins(
            PythonTools(load_tools(settings.tool_modules)),
            load_guardrails(settings.guardrail_modules),
            load_handlers(settings.handler_modules),
        )
    except BadPlugin as bad:
        raise BadSettings(" ".join(str(bad).split())) from bad
    taken = sorted(built_in_rules().keys() & {guardrail.name for guardrail in found.guardrails})
    if taken:
        raise BadSettings(f"a guardrail cannot be called {taken[0]!r}: that is a built-in one")
    return found
