"""A command that answers by script: `python command_player.py FOLDER`, where `attempts.json` lies.

The n-th run plays the n-th attempt, the last one repeats; each leaves its process id as `pid-n` and what it
was told as `told-n`. It imports little, for it is started a thousand times.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any


def say(**line: Any) -> None:
    """One line."""
    print(json.dumps(line), flush=True)


def main(folder: str) -> None:
    """Play the attempt whose turn it is."""
    told = sys.stdin.read()
    with open(os.path.join(folder, "attempts.json"), encoding="utf-8") as file:
        attempts = json.load(file)
    nth = 0
    while True:
        try:
            descriptor = os.open(os.path.join(folder, f"pid-{nth}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            break
        except FileExistsError:
            nth += 1
    os.write(descriptor, str(os.getpid()).encode())
    os.close(descriptor)
    with open(os.path.join(folder, f"told-{nth}"), "w", encoding="utf-8") as file:
        file.write(told)
    steps = attempts[min(nth, len(attempts) - 1)]
    opened = False
    for step in steps:
        ((word, value),) = step.items()
        if not opened and word not in ("open_wait_ms", "error"):
            say(type="start")
            opened = True
        play(word, value, steps)


def play(word: str, value: Any, steps: list[dict[str, Any]]) -> None:
    """One step."""
    if word in ("open_wait_ms", "wait_ms"):
        time.sleep(value / 1000)
    elif word in ("text", "reasoning", "refusal"):
        say(type=word, text=value)
    elif word == "tool_call":
        if "name" in value:  # calls are said whole, at the place of their first fragment
            calls = [step["tool_call"] for step in steps if "tool_call" in step]
            arguments = "".join(call["arguments"] for call in calls if call["index"] == value["index"])
            say(type="tool_call", id=value["id"], name=value["name"], arguments=json.loads(arguments or "{}"))
    elif word == "usage":
        say(type="usage", **value)
    elif word == "line":
        say(**value)
    elif word == "raw":
        print(value, flush=True)
    elif word == "complain":
        print(value, file=sys.stderr, flush=True)
    elif word == "exit":
        sys.exit(value)
    elif word == "end":
        say(type="end", **({} if value is None else {"reason": value}))
    elif word == "error":
        fail(value)


def fail(error: dict[str, Any]) -> None:
    """As the error says."""
    if error["kind"] == "network":
        os.kill(os.getpid(), signal.SIGKILL)
    elif error["kind"] == "malformed":
        print("this is no JSON", flush=True)
    else:
        say(type="error", message="the script says so", status=error.get("status"))


if __name__ == "__main__":
    main(sys.argv[1])
