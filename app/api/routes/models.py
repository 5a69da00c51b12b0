"""Models that runs can call."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from app.api.bodies import check_name, json_body
from app.api.deps import Admin, Reader, Serving
from app.api.documented import answers
from app.api.once import AskedOnce
from app.api.replies import reply
from app.api.schemas.catalog import whole
from app.api.schemas.models import NAME, CreateModel, ModelList, ModelView, ReplaceModel, model_view
from app.core.errors import Conflict, NotFound, UnsupportedOption

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("", responses=answers(200, ModelList))
async def list_models(who: Reader, services: Serving) -> Response:
    """List the models that the project can use, by name."""
    models = services.models
    return reply(whole([model_view(model, models.condition(model)) for model in await models.list(who)]))


@router.post("", status_code=201, responses=answers(201, ModelView, Conflict, UnsupportedOption))
async def create_model(
    who: Admin, services: Serving, asked: AskedOnce, body: Annotated[CreateModel, json_body(CreateModel)]
) -> Response:
    """Register a model."""
    made = await services.models.create(who, body.spec(body.name), await asked.once(who, 201, model_view))
    return reply(model_view(made), 201, {"Location": f"/v1/models/{made.spec.name}"})


@router.get("/{name}", responses=answers(200, ModelView, NotFound))
async def get_model(name: str, who: Reader, services: Serving) -> Response:
    """Read a model."""
    model = await services.models.get(who, name)
    return reply(model_view(model, services.models.condition(model)))


@router.put(
    "/{name}",
    responses=answers(200, ModelView, UnsupportedOption, says="Replaced")
    | answers(201, ModelView, says="Registered"),
)
async def put_model(
    name: str, who: Admin, services: Serving, body: Annotated[ReplaceModel, json_body(ReplaceModel)]
) -> Response:
    """Register a model, or replace the one of this name."""
    check_name("model", NAME, name, body.name)
    made, new = await services.models.put(who, body.spec(name))
    return reply(model_view(made), 201 if new else 200)


@router.delete("/{name}", status_code=204, responses=answers(204, None, NotFound, Conflict))
async def delete_model(name: str, who: Admin, services: Serving) -> Response:
    """Remove a model of the project; running runs keep it."""
    await services.models.delete(who, name)
    return Response(status_code=204)
