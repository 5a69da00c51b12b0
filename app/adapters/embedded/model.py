"""A small language model of Branchline's own, in a child process that ends with this one."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib.util
import json
import os
import secrets
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from app.adapters.embedded.errors import LocalModelFailed, LocalModelMissing

_MODULE = "app.adapters.embedded.model_child"
_IMPORT_ROOT = Path(__file__).resolve().parents[3]
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""All that the child sees of the environment: the service's secrets are none of its business."""

_READY_S = 120.0
_SLOTS = 2
_MOST_THREADS = 4
_SPINS = "1000"
"""How often a thread looks whether the others are done before it sleeps: for some microseconds.

With that, two cores write 80 tokens a second, and 29 beside another busy process. Without any looking it
is 27, and without a bound 2 beside another busy process.
"""


class EmbeddedModel:
    """A local model behind an HTTP server that speaks the OpenAI wire format.

    Use it from the main thread: on Linux the child dies with the thread that started it. `base_url` may
    change when the model is revived, so read it for each request.
    """

    def __init__(
        self,
        weights: Path | None = None,
        *,
        log: Path | None = None,
        deadline_s: float = 10.0,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`weights` is a GGUF file, by default the one that `bin/setup` installed.

        `log` gets what the engine says. A server that does not report on its work within `deadline_s` seconds
        is taken to hang.
        """
        self._weights = weights
        self._log = log
        self._deadline_s = deadline_s
        self._say = say
        self._key = secrets.token_urlsafe(24)
        self._address: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def start(self) -> None:
        """Return when the model answers, after about a second.

        Raises LocalModelMissing with what to install, or LocalModelFailed.
        """
        weights = find_weights(self._weights)
        if importlib.util.find_spec("xllamacpp") is None:
            raise LocalModelMissing(
                "The package that runs the local model is not installed: run "
                "`pip install 'branchline[local-model]'`."
            )
        self._say(f"Loading the local model {weights.stem}")
        self._end()
        self._stopped = False
        self._await_address(self._spawn(weights))

    async def revive(self) -> None:
        """Replace a server that died or hangs, at its old address if that is still free.

        Without effect before start() and after stop().
        """
        if self._address is None:
            return
        weights = find_weights(self._weights)
        for port in (urlsplit(self._address).port or 0, 0):
            if self._stopped:
                return
            self._end()
            child = self._spawn(weights, port)  # here, not in a passing thread: see the class
            try:
                await asyncio.to_thread(self._await_address, child)
            except LocalModelFailed:
                if port == 0:
                    raise
            else:
                return

    def stop(self) -> None:
        """End the server at once; without effect when there is none."""
        self._stopped = True
        self._end()

    def is_ready(self) -> bool:
        """Whether the server works through requests; blocks for milliseconds, at most the deadline.

        It asks for the state of the slots: that answer comes from the loop that does the work, unlike the one
        on health, which the server gives while that loop hangs.
        """
        child = self._process
        if child is None or child.poll() is not None or self._address is None:
            return False
        at = urlsplit(self._address)
        connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=self._deadline_s)
        try:
            connection.request("GET", "/slots", headers={"Authorization": f"Bearer {self._key}"})
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    @property
    def pid(self) -> int | None:
        """The server's process id, None when there is none."""
        return self._process.pid if self._process else None

    @property
    def base_url(self) -> str:
        """Where chat completions are served: `http://127.0.0.1:<port>/v1`."""
        if self._address is None:
            raise RuntimeError("the local model has not been started")
        return f"{self._address}/v1"

    @property
    def api_key(self) -> str:
        """What requests must carry; it keeps pages in the user's browser and other accounts out."""
        return self._key

    def __enter__(self) -> EmbeddedModel:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _spawn(self, weights: Path, port: int = 0) -> subprocess.Popen[bytes]:
        with open(self._log or os.devnull, "ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Control-C in a terminal is for the service, which then stops the model in its own time.
                start_new_session=True,
                env=_environment(),
            )
        self._process = child
        config = {
            "weights": str(weights),
            "port": port,
            "slots": _SLOTS,
            "threads": min(os.cpu_count() or 1, _MOST_THREADS),
            "key": self._key,
        }
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended at once: its missing answer tells
            child.stdin.write(json.dumps(config).encode() + b"\n")
            child.stdin.flush()
        return child

    def _await_address(self, child: subprocess.Popen[bytes]) -> None:
        output = child.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], _READY_S)
        line = output.readline() if ready else b""
        answer = json.loads(line) if line else {"error": "it gave no answer"}
        if "address" in answer:
            self._address = answer["address"]
            return
        self._end()
        if "missing" in answer:
            raise LocalModelMissing(
                f"The local model cannot run here: {answer['missing']}. If it is a library of the system, "
                "install it: on Debian, libgomp1."
            )
        raise LocalModelFailed(f"The local model did not start: {answer['error']} (its log: {self._log}).")

    def _end(self) -> None:
        """Kill the child: it has nothing to save."""
        child, self._process = self._process, None
        if child is not None:
            child.kill()
            child.communicate()


def find_weights(named: Path | None = None) -> Path:
    """The named file, else the first in the environment's folder `models`; raises LocalModelMissing."""
    if named is not None:
        if not named.is_file():
            raise LocalModelMissing(f"BRANCHLINE_MODEL_WEIGHTS names {named}, which is not a file.")
        return named
    folder = Path(sys.prefix) / "models"
    found = sorted(folder.glob("**/*.gguf"))
    if not found:
        raise LocalModelMissing(
            f"There are no weights of a local model in {folder}. Run bin/setup, or name a GGUF file with "
            "BRANCHLINE_MODEL_WEIGHTS."
        )
    return found[0]


def _environment() -> dict[str, str]:
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {"PYTHONPATH": str(_IMPORT_ROOT), "GOMP_SPINCOUNT": _SPINS, **passed_on}
