"""ASGI entry, for servers that start applications by name: `uvicorn app.main:app`."""

from __future__ import annotations

from contextlib import AsyncExitStack

from starlette.types import ASGIApp, Receive, Scope, Send

from app.settings import BadSettings, load_settings
from app.wiring import application


class Branchline:
    """The service, put together when the server says that it starts."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or the life of the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        assert self._app is not None, "the server did not announce its start"
        await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            try:
                settings = load_settings()
                if settings.database_url is None:
                    raise BadSettings("DATABASE_URL has to be set; `branchline run` brings its own database.")
                url = settings.database_url.get_secret_value()
                made = await stack.enter_async_context(application(settings, url))
            except Exception as failure:
                await send({"type": "lifespan.startup.failed", "message": str(failure)})
                return
            self._app = made.app
            await send({"type": "lifespan.startup.complete"})
            await receive()
            made.closing.set()
        await send({"type": "lifespan.shutdown.complete"})


app = Branchline()
