"""For those who keep the process running: is it alive, is it ready, how is it doing."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.responses import Response

from app.api.deps import Check, Serving
from app.api.documented import answers
from app.api.replies import reply
from app.api.schemas.catalog import HealthView
from app.core.errors import FieldError, Unavailable

router = APIRouter(tags=["operations"])

PATIENCE_S = 5
"""How long one check may take before it counts as failed."""


@router.get("/healthz", responses=answers(200, HealthView))
async def check_health() -> Response:
    """Tell that the process lives, whatever becomes of its database."""
    return reply({"status": "ok"})


@router.get("/readyz", responses=answers(200, HealthView, Unavailable))
async def check_readiness(services: Serving) -> Response:
    """Tell whether requests should be sent here, and if not, why."""
    names = list(services.readiness)
    found = await asyncio.gather(*(_outcome(check) for check in services.readiness.values()))
    faults = [
        FieldError("", words, name) for name, words in zip(names, found, strict=True) if words is not None
    ]
    if faults:
        failed = "; ".join(f"{fault.code}: {fault.message}" for fault in faults)
        raise Unavailable(f"Not ready: {failed}.", errors=faults, retry_after_s=1)
    return reply({"status": "ok"})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {}}}},
)
async def show_metrics(request: Request, services: Serving) -> Response:
    """Show figures of this process for Prometheus."""
    return Response(generate_latest(services.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


async def _outcome(check: Check) -> str | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await check()
    except TimeoutError:
        return f"no answer within {PATIENCE_S} s"
    except Exception as error:
        return f"the check itself failed: {type(error).__name__}"
