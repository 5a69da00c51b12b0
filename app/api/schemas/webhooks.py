"""Webhook endpoints and deliveries as clients send and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from app.api.bodies import Body
from app.api.paging import PageQuery
from app.api.replies import instant
from app.api.schemas.common import PageView, View
from app.core.callbacks import CallbackName
from app.ports.webhooks import Delivery, Endpoint, NewEndpoint

DeliveryStatus = Literal["pending", "done", "dead"]
Url = Annotated[str, Field(min_length=1, max_length=2_000)]
Description = Annotated[str, Field(max_length=500)]
Types = Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=200)]
Callbacks = Annotated[list[CallbackName], Field(max_length=14)]

_CALLBACKS = "Names of the callbacks to be sent; all but on_token and on_event by default."
_TYPES = "Types of the events to be sent beside them, such as RUN_COMPLETED; none by default."
_EXAMPLE: dict[str, Any] = {
    "url": "https://hooks.example/branchline",
    "description": "alerts",
    "callbacks": ["on_error", "on_complete"],
    "event_types": ["RUN_COMPLETED", "RUN_FAILED"],
}
_ID = "019a0000-0000-7000-8000-000000000006"
_RUN_ID = "019a0000-0000-7000-8000-000000000002"
_TIME = "2026-11-30T12:00:00.000Z"


class CreateEndpoint(Body):
    """An endpoint to be told of the callbacks of every run that is accepted from now on."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    url: Url = Field(description="http or https; private addresses only if the operator lists them.")
    description: Description | None = None
    callbacks: Callbacks | None = Field(None, description=_CALLBACKS)
    event_types: Types = Field(default_factory=list, description=_TYPES)
    active: bool = Field(True, description="False keeps it without anything being sent.")

    def new(self) -> NewEndpoint:
        """What is to be stored."""
        return NewEndpoint(self.url, self.description, self.callbacks, self.event_types, self.active)


class ChangeEndpoint(Body):
    """What is to change: absent members stay, and null means the default."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"callbacks": None, "active": True}]})

    url: Url = "-"
    description: Description | None = None
    callbacks: Callbacks | None = Field(None, description=_CALLBACKS)
    event_types: Types | None = Field(None, description=_TYPES)
    active: bool = Field(True, description="True also enables an endpoint that was disabled.")

    def changes(self) -> dict[str, Any]:
        """Column by column, only what was sent."""
        out = {name: getattr(self, name) for name in self.model_fields_set}
        if "event_types" in out:
            out["event_types"] = self.event_types or []
        return out


class EndpointView(View):
    """Where callbacks of the project's runs are posted to."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": _ID,
                    "object": "webhook_endpoint",
                    **_EXAMPLE,
                    "active": True,
                    "disabled_at": None,
                    "disabled_reason": None,
                    "created_at": _TIME,
                    "updated_at": _TIME,
                }
            ]
        }
    )

    id: UUID
    object: Literal["webhook_endpoint"]
    url: str
    description: str | None
    callbacks: list[str] | None = Field(description="Null for all but on_token and on_event.")
    event_types: list[str]
    active: bool
    disabled_at: datetime | None
    disabled_reason: str | None = Field(
        description="`requested` by an admin, or `gone`: the receiver answered 410."
    )
    created_at: datetime
    updated_at: datetime


class NewEndpointView(EndpointView):
    """An endpoint that was just made, or has a new secret."""

    secret: str | None = Field(
        None, description="What posts are signed with, shown this once; absent when a request is repeated."
    )


class EndpointPage(PageView[EndpointView]):
    """One page of webhook endpoints."""


class DeliveryView(View):
    """How far an endpoint has been told of a run."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": _RUN_ID,
                    "object": "webhook_delivery",
                    "endpoint_id": _ID,
                    "run_id": _RUN_ID,
                    "status": "pending",
                    "delivered_seq": 12,
                    "posts": 1,
                    "failures": 2,
                    "next_at": "2026-11-30T12:00:35.000Z",
                    "last_status": 503,
                    "last_error": "HTTP 503",
                    "last_attempt_at": "2026-11-30T12:00:05.000Z",
                    "created_at": _TIME,
                    "ended_at": None,
                }
            ]
        }
    )

    id: UUID = Field(description="The run's: an endpoint has one delivery for each run.")
    object: Literal["webhook_delivery"]
    endpoint_id: UUID
    run_id: UUID
    status: DeliveryStatus = Field(
        description="pending: more is to come; done: told of everything; dead: given up, to be redriven."
    )
    delivered_seq: int = Field(description="Everything up to this event has been told.")
    posts: int = Field(description="How many the receiver took.")
    failures: int = Field(description="Failed tries of the present post.")
    next_at: datetime | None = Field(description="When it is looked at again at the latest; null at its end.")
    last_status: int | None = Field(description="HTTP status of the last try; null when no answer came.")
    last_error: str | None
    last_attempt_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


class DeliveryPage(PageView[DeliveryView]):
    """One page of deliveries."""


class DeliveryQuery(PageQuery):
    """Which deliveries."""

    status: DeliveryStatus | None = None


def endpoint_view(endpoint: Endpoint) -> dict[str, Any]:
    """An endpoint as `EndpointView` says."""
    return {
        "id": endpoint.id,
        "object": "webhook_endpoint",
        "url": endpoint.url,
        "description": endpoint.description,
        "callbacks": endpoint.callbacks,
        "event_types": endpoint.event_types,
        "active": endpoint.active,
        "disabled_at": instant(endpoint.disabled_at),
        "disabled_reason": endpoint.disabled_reason,
        "created_at": instant(endpoint.created_at),
        "updated_at": instant(endpoint.updated_at),
    }


def delivery_view(delivery: Delivery) -> dict[str, Any]:
    """A delivery as `DeliveryView` says."""
    pending = delivery.status == "pending"
    return {
        "id": delivery.run_id,
        "object": "webhook_delivery",
        "endpoint_id": delivery.endpoint_id,
        "run_id": delivery.run_id,
        "status": delivery.status,
        "delivered_seq": delivery.delivered_seq,
        "posts": delivery.posts,
        "failures": delivery.failures,
        "next_at": instant(delivery.next_at) if pending else None,
        "last_status": delivery.last_status,
        "last_error": delivery.last_error,
        "last_attempt_at": instant(delivery.last_attempt_at),
        "created_at": instant(delivery.created_at),
        "ended_at": instant(delivery.ended_at),
    }
