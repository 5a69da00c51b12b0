"""Models as clients send and see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from app.api.bodies import Body
from app.api.replies import exact, instant
from app.api.schemas.common import NotOffered, View
from app.core.header_values import shown
from app.core.limits.options import ModelLimits
from app.core.limits.room import Circuit
from app.core.operate.lifecycle import LifecycleBody
from app.core.usage.prices import Price
from app.ports.catalog import ModelSpec, StoredModel
from app.services.capacity import Condition

NAME = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}$"
"""A name is part of an address, so it has no blank and no slash."""

_SAID: dict[str, Any] = {
    "provider": "openai",
    "model": "gpt-4o-mini",
    "base_url": "https://api.openai.com/v1",
    "api_key_env": "OPENAI_API_KEY",
    "options": {},
}

_CONDITION: dict[str, Any] = {
    "under_way": 2,
    "waiting": 0,
    "circuit": None,
    "failures": None,
    "retry_after_ms": None,
}


_PRICE: dict[str, Any] = {
    "input": "0.15",
    "output": "0.6",
    "cached_input": "0.075",
    "cache_write": None,
    "reasoning": None,
}


class PriceView(View):
    """US dollars for a million tokens of each kind, as exact decimal text."""

    model_config = ConfigDict(json_schema_extra={"examples": [_PRICE]})

    input: str
    output: str
    cached_input: str | None = Field(description="Null: as `input`.")
    cache_write: str | None = Field(description="Null: as `input`.")
    reasoning: str | None = Field(description="Null: as `output`.")


class PutModel(Body):
    """What a name is to mean."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SAID]})

    provider: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        description="The wire format that the model's server speaks."
    )
    model: Annotated[str, Field(min_length=1, max_length=500)] = Field(description="Its name on the wire.")
    base_url: Annotated[str, Field(min_length=1, max_length=2_000)] | None = Field(
        None, description="http or https; the provider's own by default."
    )
    api_key_env: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None,
        description="The variable of the server that holds the key; the operator lists which may be used.",
    )
    credential: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="The credential of the project that holds the key, in place of `api_key_env`."
    )
    api_key: NotOffered = None
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="The provider's own. A value of its `headers` may be `env:NAME`, for a variable that the "
        "operator lists, or `credential:NAME`.",
    )
    lifecycle: LifecycleBody | None = Field(None, description="For runs on this model.")
    limits: ModelLimits | None = Field(
        None, description="What each process of the service may ask of the model; null is no limit."
    )
    price: Price | None = Field(
        None, description="What its tokens cost; null: as the server's table of prices says, if it does."
    )

    def spec(self, name: str) -> ModelSpec:
        """What is to be stored under the name."""
        return ModelSpec(
            name=name,
            provider=self.provider,
            model=self.model,
            base_url=self.base_url,
            api_key_env=self.api_key_env,
            options=self.options,
            lifecycle=None if self.lifecycle is None else self.lifecycle.level(),
            limits=None if self.limits is None else self.limits.model_dump(exclude_none=True),
            credential=self.credential,
            price=None if self.price is None else self.price.wire(),
        )


class CreateModel(PutModel):
    """A model to be registered."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "small", **_SAID}]})

    name: Annotated[str, Field(pattern=NAME)] = Field(description="What branches and runs call it.")


class ReplaceModel(PutModel):
    """A model to be registered, or to take the place of the one with this name."""

    name: str | None = Field(None, description="The same as in the address, if given.")


class ConditionView(View):
    """How far the limits of a model are used in the process that answers."""

    model_config = ConfigDict(json_schema_extra={"examples": [_CONDITION]})

    under_way: int = Field(description="Attempts that have begun and not ended.")
    waiting: int = Field(description="Attempts that wait for their turn.")
    circuit: Circuit | None = Field(description="The circuit breaker's state; null without one.")
    failures: int | None = Field(description="Failures of the model in a row.")
    retry_after_ms: int | None = Field(description="How long an open circuit stays so.")


class ModelView(View):
    """A registered model. Its key is never shown."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "object": "model",
                    "name": "small",
                    **_SAID,
                    "limits": {"concurrency": 8, "wait_ms": 30_000},
                    "condition": _CONDITION,
                    "credential": None,
                    "lifecycle": None,
                    "price": _PRICE,
                    "source": "project",
                    "created_at": "2026-11-30T12:00:00.000Z",
                    "updated_at": "2026-11-30T12:00:00.000Z",
                }
            ]
        }
    )

    object: Literal["model"]
    name: str
    provider: str
    model: str
    base_url: str | None
    api_key_env: str | None
    credential: str | None
    options: dict[str, Any] = Field(
        description="The provider's own; the value of a header is null unless it only names its secret."
    )
    limits: dict[str, Any] | None
    condition: ConditionView | None = Field(description="Null for one without limits, or not asked yet.")
    lifecycle: dict[str, Any] | None
    price: PriceView | None = Field(
        description="What its tokens cost; null where it was not said, and the server's table may know."
    )
    source: Literal["project", "operator"] = Field(
        description="Who registered it; the operator's are read-only and give way to one of the same name."
    )
    created_at: datetime | None = Field(description="Null for the operator's models.")
    updated_at: datetime | None


class ModelList(View):
    """Every model that the project can use, by name."""

    data: list[ModelView]
    has_more: Literal[False]
    next: None


def options_shown(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without the secrets that may be among their headers."""
    headers = options.get("headers")
    return {**options, "headers": shown(headers)} if isinstance(headers, dict) else dict(options)


def model_view(model: StoredModel, condition: Condition | None = None) -> dict[str, Any]:
    """A model as `ModelView` says."""
    spec = model.spec
    return {
        "object": "model",
        "name": spec.name,
        "provider": spec.provider,
        "model": spec.model,
        "base_url": spec.base_url,
        "api_key_env": spec.api_key_env,
        "credential": spec.credential,
        "options": exact(options_shown(spec.options)),
        "limits": exact(spec.limits),
        "condition": None if condition is None else asdict(condition),
        "lifecycle": exact(spec.lifecycle),
        "price": spec.price,
        "source": "operator" if model.id is None else "project",
        "created_at": instant(model.created_at),
        "updated_at": instant(model.updated_at),
    }
