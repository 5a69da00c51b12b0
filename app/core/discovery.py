"""Collect the one constant that every module of a package declares."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any


def discover(package: ModuleType, constant: str) -> dict[str, Any]:
    """The value of `constant` in each module of `package`, by the module's name, in alphabetical order.

    Raises `LookupError` for a module without it: such a package holds extensions and nothing else.
    """
    found: dict[str, Any] = {}
    for name in sorted(module.name for module in iter_modules(package.__path__)):
        module = import_module(f"{package.__name__}.{name}")
        if not hasattr(module, constant):
            raise LookupError(f"{module.__name__} declares no {constant}")
        found[name] = getattr(module, constant)
    return found
