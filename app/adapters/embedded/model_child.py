"""The process that serves the local language model over HTTP on loopback, and ends with its parent.

Run as `python -m app.adapters.embedded.model_child <pid of the parent>`. It reads one JSON line with its
configuration from standard input, writes one with its address or its trouble to standard output, and ends
when standard input does.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_CONTEXT_TOKENS = 2048
"""Per slot: what the small models that run here can make use of."""
_BATCH_TOKENS = 512
"""Prompt tokens per step; more of them take memory and save no time here."""
_QUIET = -1


def main(parent: int) -> None:
    """Serve until the parent has ended."""
    _die_with(parent)
    answers = _claim_standard_output()
    config = json.loads(sys.stdin.buffer.readline())
    try:
        server = _serve(**config)
    except ImportError as error:
        _answer(answers, {"missing": str(error)})
        sys.exit(1)
    except (OSError, RuntimeError, ValueError) as error:
        _answer(answers, {"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)
    _answer(answers, {"address": server.listening_address})
    sys.stdin.buffer.read()
    os._exit(0)  # do not wait for requests in flight


def _serve(*, weights: str, port: int, slots: int, threads: int, key: str) -> Any:
    """Load the weights and listen; only requests that carry the key are served."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.api_keys = [key]
    params.n_parallel = slots
    params.n_ctx = _CONTEXT_TOKENS * slots
    params.n_batch = params.n_ubatch = _BATCH_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.use_jinja = True
    params.ui = False
    params.cache_ram_mib = 0
    params.verbosity = _QUIET
    return xllamacpp.Server(params)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process with the thread that started it, also while it holds the GIL.

    Elsewhere than on Linux the end of standard input must do, which is noticed once the weights are loaded.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request was made
        os._exit(1)


def _claim_standard_output() -> int:
    """A descriptor for our own answers; what the engine prints goes to standard error."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _answer(answers: int, content: dict[str, str]) -> None:
    os.write(answers, json.dumps(content).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
