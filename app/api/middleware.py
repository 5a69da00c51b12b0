"""Around every request: an id, a log line, figures, and an answer even when we fail."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.metrics import Metrics
from app.api.problems import REQUEST_ID, STANDINGS, problem
from app.core.limits.quota import rate_fields

log = structlog.get_logger("branchline.http")

CLIENT_GONE = 499
"""Status in log and figures when nobody was left to be answered."""

_FIT_FOR_ID = re.compile(rb"[A-Za-z0-9._:@/+=-]{1,128}")
_QUIET = ("/healthz", "/readyz", "/metrics")


class Observe:
    """Gives the request its id, answers for unforeseen errors, and notes how it went."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, new_id: Callable[[], Any]) -> None:
        self._app = app
        self._metrics = metrics
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given_id(scope) or str(self._new_id())
        scope[REQUEST_ID] = request_id
        started = time.perf_counter()
        status = 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
                if standings := scope.get(STANDINGS):
                    policy, state = (
                        field.encode() for field in rate_fields(standings, time.perf_counter() - started)
                    )
                    message["headers"] += [(b"ratelimit-policy", policy), (b"ratelimit", state)]
            await send(message)

        try:
            if _holds_nul(scope):
                refusal = problem(
                    400, "malformed_request", "An address cannot hold a NUL.", request_id=request_id
                )
                await refusal(scope, receive, send_marked)
            else:
                await self._app(scope, receive, send_marked)
        except ClientDisconnect:
            status = status or CLIENT_GONE
        except Exception:
            log.exception(
                "request failed", request_id=request_id, method=scope["method"], route=_route(scope)
            )
            if status:
                # Too late for a problem: the server cuts the connection, and the client sees that.
                return
            sorry = problem(
                500,
                "internal",
                "Something went wrong on our side; the log has more under this request id.",
                request_id=request_id,
            )
            await sorry(scope, receive, send_marked)
        finally:
            self._note(scope, status or CLIENT_GONE, request_id, time.perf_counter() - started)

    def _note(self, scope: Scope, status: int, request_id: str, seconds: float) -> None:
        method, route = scope["method"], _route(scope)
        self._metrics.served(method, route, status, seconds)
        if route in _QUIET and status < 400:
            return
        log.info(
            "request",
            method=method,
            route=route,
            status=status,
            ms=round(seconds * 1000, 1),
            request_id=request_id,
        )


def _given_id(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            return value.decode() if _FIT_FOR_ID.fullmatch(value) else None
    return None


def _holds_nul(scope: Scope) -> bool:
    return "\0" in scope["path"] or b"%00" in scope["query_string"] or b"\0" in scope["query_string"]


def _route(scope: Scope) -> str:
    """The template of the route: ids in it would make a new series of every request."""
    template = getattr(scope.get("route"), "path_format", None)
    return template if isinstance(template, str) else "unmatched"


class LocalOnly:
    """In development mode: answers only to this machine's own names, so that no web page gets in.

    Without a key, a page on any site could call us: directly (its Origin tells) or by a name of its own that
    resolves to this machine (its Host tells).
    """

    NAMES = ("localhost", "127.0.0.1", "[::1]")

    def __init__(self, app: ASGIApp, *, origins: tuple[str, ...] = ()) -> None:
        """`origins` are those that the operator let in."""
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            fault = self._fault(scope)
            if fault is not None:
                refusal = problem(403, "forbidden", fault, request_id=scope.get(REQUEST_ID))
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _fault(self, scope: Scope) -> str | None:
        port = (scope.get("server") or (None, None))[1]
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._is_ours(hosts[0].decode("latin-1"), port):
            return "Development mode answers only to localhost, 127.0.0.1 and [::1] with the server's port."
        for name, value in scope["headers"]:
            if name == b"origin" and not self._may_call(value.decode("latin-1"), port):
                return (
                    "Development mode takes no requests from web pages of other sites; "
                    "list the origin in BRANCHLINE_CORS_ORIGINS to let it in."
                )
        return None

    def _is_ours(self, host: str, port: int | None) -> bool:
        name, colon, digits = host.lower().rpartition(":")
        if not colon or digits.endswith("]"):
            name, digits = host.lower(), "80"
        return name in self.NAMES and (port is None or digits == str(port))

    def _may_call(self, origin: str, port: int | None) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        scheme, _, host = origin.partition("://")
        return scheme == "http" and self._is_ours(host, port)
