"""Find the handlers of this installation: entry points, and modules named in the settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.adapters.handlers.declare import InvalidHandler, Method, methods_of
from app.adapters.plugins import PluginKind, load_plugins


def _named(handler: Any) -> tuple[str, Mapping[str, Method]]:
    return type(handler).__qualname__, methods_of(handler)


HANDLERS: Final = PluginKind("branchline.handlers", "HANDLERS", _named, InvalidHandler)


def load_handlers(modules: Iterable[str] = ()) -> list[tuple[str, Mapping[str, Method]]]:
    """A name for logs and the callbacks of each handler: of all entry points, then of `modules`' `HANDLERS`.

    An entry point may lead to a module with `HANDLERS`, to a handler, to a list of them, or to a generator
    function that yields them. Raises `InvalidHandler` naming what could not be loaded.
    """
    return load_plugins(HANDLERS, modules)
