"""Webhook endpoints, and what was delivered to them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.bodies import json_body
from app.api.deps import Admin, Serving
from app.api.documented import answers
from app.api.once import AskedOnce
from app.api.paging import PageQuery, id_cursor, paged
from app.api.replies import reply
from app.api.schemas.webhooks import (
    ChangeEndpoint,
    CreateEndpoint,
    DeliveryPage,
    DeliveryQuery,
    DeliveryView,
    EndpointPage,
    EndpointView,
    NewEndpointView,
    delivery_view,
    endpoint_view,
)
from app.core.errors import Conflict, InvalidCursor, NotFound

router = APIRouter(prefix="/v1/webhook-endpoints", tags=["webhooks"])


@router.get("", responses=answers(200, EndpointPage, InvalidCursor))
async def list_webhook_endpoints(
    request: Request, who: Admin, services: Serving, query: Annotated[PageQuery, Query()]
) -> Response:
    """List the project's webhook endpoints, without their secrets."""
    page = await services.webhooks.page(who, query.part(id_cursor))
    return paged(request, page, endpoint_view, lambda endpoint: endpoint.id)


@router.post("", status_code=201, responses=answers(201, NewEndpointView, Conflict))
async def create_webhook_endpoint(
    who: Admin,
    services: Serving,
    asked: AskedOnce,
    body: Annotated[CreateEndpoint, json_body(CreateEndpoint)],
) -> Response:
    """Make a webhook endpoint, whose secret is shown this once."""
    made, secret = await services.webhooks.create(who, body.new(), await asked.once(who, 201, endpoint_view))
    location = {"Location": f"/v1/webhook-endpoints/{made.id}"}
    return reply({**endpoint_view(made), "secret": secret}, 201, location)


@router.get("/{endpoint_id}", responses=answers(200, EndpointView, NotFound))
async def get_webhook_endpoint(endpoint_id: UUID, who: Admin, services: Serving) -> Response:
    """Read a webhook endpoint, without its secret."""
    return reply(endpoint_view(await services.webhooks.get(who, endpoint_id)))


@router.patch("/{endpoint_id}", responses=answers(200, EndpointView, NotFound))
async def change_webhook_endpoint(
    endpoint_id: UUID,
    who: Admin,
    services: Serving,
    body: Annotated[ChangeEndpoint, json_body(ChangeEndpoint)],
) -> Response:
    """Change a webhook endpoint, or enable one that was disabled."""
    return reply(endpoint_view(await services.webhooks.change(who, endpoint_id, body.changes())))


@router.delete("/{endpoint_id}", status_code=204, responses=answers(204, None, NotFound))
async def delete_webhook_endpoint(endpoint_id: UUID, who: Admin, services: Serving) -> Response:
    """Remove a webhook endpoint with its deliveries."""
    await services.webhooks.delete(who, endpoint_id)
    return Response(status_code=204)


@router.post("/{endpoint_id}/rotate-secret", responses=answers(200, NewEndpointView, NotFound))
async def rotate_webhook_secret(
    endpoint_id: UUID, who: Admin, services: Serving, asked: AskedOnce
) -> Response:
    """Give a webhook endpoint a new secret; posts are signed with the old one too for a day."""
    once = await asked.once(who, 200, endpoint_view)
    changed, secret = await services.webhooks.rotate(who, endpoint_id, once)
    return reply({**endpoint_view(changed), "secret": secret})


@router.get("/{endpoint_id}/deliveries", responses=answers(200, DeliveryPage, NotFound, InvalidCursor))
async def list_webhook_deliveries(
    endpoint_id: UUID,
    request: Request,
    who: Admin,
    services: Serving,
    query: Annotated[DeliveryQuery, Query()],
) -> Response:
    """List what an endpoint is owed and was sent, run by run."""
    page = await services.webhooks.deliveries(who, endpoint_id, query.status, query.part(id_cursor))
    return paged(request, page, delivery_view, lambda delivery: delivery.run_id)


@router.post(
    "/{endpoint_id}/deliveries/{delivery_id}/redrive",
    responses=answers(200, DeliveryView, NotFound, Conflict),
)
async def redrive_webhook_delivery(
    endpoint_id: UUID, delivery_id: UUID, who: Admin, services: Serving, asked: AskedOnce
) -> Response:
    """Try a delivery again at once that was given up, or waits for its next try."""
    once = await asked.once(who, 200, delivery_view)
    return reply(delivery_view(await services.webhooks.redrive(who, endpoint_id, delivery_id, once)))
