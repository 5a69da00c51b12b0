"""A worker that carries out tool calls for runs: it finds one, has it to itself, and brings what came of it.

`python examples/client_worker.py`, with WORKER_URL and, where the service asks for one, a key of the scopes
`read` and `run` as WORKER_KEY. `--once` looks for work once. It needs nothing but Python, and any number of
workers may run.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

URL = os.environ.get("WORKER_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("WORKER_KEY")
LEASE_S = 30
PAUSE_S = 1.0
"""Between two looks for work, where there was none."""

DOORS = {"east": "shut", "west": "jammed"}


def open_door(door: str) -> dict[str, Any]:
    """Open a door of the building."""
    if DOORS[door] == "jammed":
        raise ValueError(f"the {door} door does not move")
    DOORS[door] = "open"
    return {"open": True}


TOOLS: Mapping[str, Callable[..., Any]] = {"open_door": open_door}


def ask(method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
    """Status and JSON of an answer; a refusal is one too."""
    headers = {"Content-Type": "application/json"}
    if KEY:
        headers["Authorization"] = f"Bearer {KEY}"
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, content, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


@contextmanager
def kept(claim: str, token: str) -> Iterator[None]:
    """Prolong the lease for as long as the block takes."""
    done = threading.Event()

    def prolong() -> None:
        while not done.wait(LEASE_S / 3):
            ask("POST", claim, {"lease_s": LEASE_S, "lease_token": token})

    thread = threading.Thread(target=prolong, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def carry_out(call: Mapping[str, Any]) -> bool:
    """Do a call, unless another worker has it; whether it was done here."""
    path = f"/v1/function-calls/{call['id']}"
    status, claimed = ask("POST", f"{path}/claim", {"lease_s": LEASE_S})
    if status != 200:
        return False
    token = claimed["lease_token"]
    result: dict[str, Any]
    with kept(f"{path}/claim", token):
        try:
            result = {"output": TOOLS[call["function"]](**call["arguments"])}
        except Exception as error:
            result = {"error": {"type": type(error).__name__, "message": str(error)}}
    status, answer = ask("POST", f"{path}/result", {**result, "lease_token": token})
    print(call["function"], json.dumps(call["arguments"]), answer.get("status"), flush=True)
    return status == 200


def look() -> int:
    """Do what waits for these tools, the oldest first; how many calls that were."""
    _, page = ask("GET", "/v1/client-calls?status=waiting&order=asc")
    return sum([carry_out(call) for call in page["data"] if call["function"] in TOOLS])


if __name__ == "__main__":
    while True:
        found = look()
        if "--once" in sys.argv:
            break
        if not found:
            time.sleep(PAUSE_S)
