"""The command: measure, and print the table."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from app.adapters.embedded.errors import EmbeddedError
from benchmarks.client import LoadFailed
from benchmarks.figures import FULL, QUICK, Scale
from benchmarks.large_log import EVENTS, large_log
from benchmarks.processes import ChildFailed
from benchmarks.report import as_json, as_markdown
from benchmarks.rounds import BLOCKS, Measured, measure

T = TypeVar("T")
_say = partial(print, file=sys.stderr, flush=True)
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0, 1 when something failed, 130 when it was called off."""
    options = _parser().parse_args(arguments)
    if options.large_log is not None:
        return _told(options.large_log)
    scale = QUICK if options.quick else FULL
    if options.rounds is not None:
        scale = replace(scale, rounds=options.rounds)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            measured = runner.run(_measured(scale, options.only))
    except (LoadFailed, ChildFailed, EmbeddedError, TimeoutError, OSError) as failure:
        print(f"bench: {failure or type(failure).__name__}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return 130
    print(as_markdown(measured))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(measured), indent=1) + "\n")
    return 0


def _told(events: int) -> int:
    """Measure in a large log alone, which takes minutes and gigabytes."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(runner.run(_cancelled_by_signals(large_log(events, say=_say))))
    except (LoadFailed, ChildFailed, EmbeddedError, TimeoutError, OSError) as failure:
        print(f"bench: {failure or type(failure).__name__}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return 130
    return 0


async def _measured(scale: Scale, only: Sequence[str]) -> Measured:
    return await _cancelled_by_signals(measure(scale, only, say=_say))


async def _cancelled_by_signals(work: Coroutine[Any, Any, T]) -> T:
    """The work; a signal to end cancels it, so that everything that was started is ended in order."""
    task = asyncio.current_task()
    assert task is not None
    for number in _ENDS:
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await work


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bin/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK.rounds} rounds: under a minute")
    parser.add_argument("--rounds", type=_positive, metavar="N", help=f"{FULL.rounds} unless said otherwise")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[block.name for block in BLOCKS],
        help="measure this alone; may be given several times",
    )
    parser.add_argument(
        "--large-log",
        type=_positive,
        nargs="?",
        const=EVENTS,
        metavar="EVENTS",
        help=f"in place of all else: pages and resumes in a log of {EVENTS:,} events, or of so many",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there as well")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
