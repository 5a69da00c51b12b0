"""The CEL library without its command line, which would cost every start a tenth of a second and 9 MB."""

from __future__ import annotations

import sys
from types import ModuleType

# The package imports its command, and with it a terminal's toolkit, when it is imported itself.
_COMMAND = "cel.cli"
_stand_in = sys.modules.setdefault(_COMMAND, ModuleType(_COMMAND))

import cel  # noqa: E402

if sys.modules.get(_COMMAND) is _stand_in and not hasattr(_stand_in, "app"):
    # Whoever wants the command itself gets it.
    del sys.modules[_COMMAND]

__all__ = ["cel"]
