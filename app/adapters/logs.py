"""Structured logs, one line each, for ourselves and for the libraries that use `logging`."""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson
import structlog

QUIET = ("uvicorn.access", "httpx", "httpcore", "aiohttp.access")
"""Loggers whose lines would only repeat ours."""


def configure_logs(*, form: str, level: str) -> None:
    """Send everything to standard error; `form` is `json` or `text`, `level` a name in lower case."""
    number = logging.getLevelName(level.upper())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    as_json = form == "json"
    last: list[Any] = (
        # Tracebacks as plain text: the structured ones, and rich's, show local variables, keys among them.
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_dumps)]
        if as_json
        else [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    structlog.configure(
        processors=shared + last,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.INFO))
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _dumps(value: Any, **_: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
