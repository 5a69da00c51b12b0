"""Put the ASGI application together."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from app.api import problems, routes
from app.api.deps import Edge, Services
from app.api.metrics import Metrics
from app.api.middleware import LocalOnly, Observe
from app.api.once import HEADER, REPLAYED, on_answered_before
from app.api.openapi import describe
from app.api.routes.operate import router as starting
from app.core.discovery import discover
from app.ports.replies import AnsweredBefore

SENT = ["Authorization", "Content-Type", HEADER, "If-Match", "Last-Event-ID", "Prefer", "X-Request-Id"]
"""Headers that a web page may send, and those that it may read."""
READ = [
    *("ETag", REPLAYED, "Link", "Location", "Preference-Applied", "RateLimit", "RateLimit-Policy"),
    *("Retry-After", "Run-Id", "X-Request-Id"),
]

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


OPERATIONS: Final = frozenset({"health"})
"""The modules of app/api/routes that a process has which serves no clients."""


def build_app(
    services: Services, *, parts: Collection[str] | None = None, lifespan: Lifespan | None = None
) -> FastAPI:
    """The application over `services`; every module of app/api/routes is part of it, or those named."""
    app = FastAPI(
        title="Branchline",
        version=services.edge.version,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        middleware=_middleware(services, services.edge),
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.services = services
    problems.install(app)
    app.add_exception_handler(AnsweredBefore, on_answered_before)
    found = [
        route
        for name, router in discover(routes, "router").items()
        if parts is None or name in parts
        for route in router.routes
        if isinstance(route, APIRoute)
    ]
    # They are tried one after the other, at some 3 µs each: first those that start runs, then the busier of
    # the rest, whose addresses are long. And they are taken over as they are, because an included router is
    # matched a second time.
    found.sort(key=lambda route: (route not in starting.routes, -route.path.count("/")))
    app.router.routes[:0] = found
    app.openapi = _once(lambda: describe(app, found))  # type: ignore[method-assign]
    return app


def _middleware(services: Services, edge: Edge) -> list[Middleware]:
    layers = [Middleware(Observe, metrics=Metrics(services.registry), new_id=services.ids.new)]
    if edge.cors_origins:
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(edge.cors_origins),
                allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
                allow_headers=SENT,
                expose_headers=READ,
            )
        )
    if edge.development:
        layers.append(Middleware(LocalOnly, origins=edge.cors_origins))
    return layers


def _once(make: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    made: dict[str, Any] = {}

    def document() -> dict[str, Any]:
        if not made:
            made.update(make())
        return made

    return document
