"""What tokens cost: prices of models, the table in which they are looked up, and exact amounts of money."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Context, Decimal
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from app.core.money import as_written
from app.core.usage.counts import Usage

CURRENCY: Final = "USD"
_MILLION: Final = 6
"""Its zeros."""
EXACT: Final = Context(prec=60)
"""Enough digits for the sum of anything that fits into prices and counts."""


Amount = Annotated[
    Decimal,
    BeforeValidator(as_written),
    Field(ge=0, le=1_000_000, max_digits=16, decimal_places=9, strict=False),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^[0-9]{1,6}(\.[0-9]{1,9})?$"},
                {"type": "number", "minimum": 0, "maximum": 1_000_000},
            ]
        }
    ),
]
"""US dollars for a million tokens, as text or as a number."""


class Price(BaseModel):
    """What a million tokens of each kind cost, in US dollars; a part without a price costs as its whole."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"input": "0.15", "output": "0.60", "cached_input": "0.075"}]},
    )

    input: Amount = Field(description="Of what is read.")
    """Of what is read."""
    output: Amount = Field(description="Of what is made.")
    """Of what is made."""
    cached_input: Amount | None = Field(
        None, description="Of input from the server's cache; as `input` if null."
    )
    """Of input from the server's cache; as `input` by default."""
    cache_write: Amount | None = Field(
        None, description="Of input to the server's cache; as `input` if null."
    )
    """Of input that is written to the server's cache; as `input` by default."""
    reasoning: Amount | None = Field(None, description="Of reasoning; as `output` if null.")
    """Of reasoning; as `output` by default."""

    def cost_of(self, usage: Usage) -> Decimal:
        """What so many tokens cost, in US dollars; exact."""
        cached, written = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
        reasoning = usage.reasoning_tokens or 0
        parts = (
            (usage.input_tokens - cached - written, self.input),
            (cached, self.input if self.cached_input is None else self.cached_input),
            (written, self.input if self.cache_write is None else self.cache_write),
            (usage.output_tokens - reasoning, self.output),
            (reasoning, self.output if self.reasoning is None else self.reasoning),
        )
        total = Decimal(0)
        for count, price in parts:
            total = EXACT.fma(count, price, total)
        return EXACT.scaleb(total, -_MILLION)

    def wire(self) -> dict[str, str | None]:
        """As it is stored and shown."""
        given = ((name, getattr(self, name)) for name in Price.model_fields)
        return {name: None if amount is None else text_of(amount) for name, amount in given}


class ListedPrice(Price):
    """A price in a table: `[[prices]]`."""

    provider: str
    """The wire format of the models that it is for."""
    model: str
    """Their name on the wire."""
    host: str | None = None
    """The host of the base URL at which they are served; any, the provider's own too, by default."""
    as_of: date | None = None
    """When the price was looked up."""
    source: str | None = None
    """Where it was found."""


class PriceTable:
    """Prices by provider, name on the wire and host; of two for the same, the one that was given first."""

    def __init__(self, prices: Iterable[ListedPrice] = ()) -> None:
        self._prices: dict[tuple[str, str, str | None], Price] = {}
        for listed in prices:
            host = listed.host and listed.host.lower()
            self._prices.setdefault((listed.provider, listed.model, host), listed)

    def find(self, provider: str, model: str, base_url: str | None) -> Price | None:
        """The price of a model that is served there; one for its host counts before one for any."""
        host = base_url and _host(base_url)
        return self._prices.get((provider, model, host)) or self._prices.get((provider, model, None))


def _host(base_url: str) -> str | None:
    try:
        return urlsplit(base_url).hostname
    except ValueError:
        return None  # whoever opens it says so


def text_of(amount: Decimal) -> str:
    """An amount as plain decimal text, without an exponent and without zeros that say nothing."""
    return f"{EXACT.plus(amount.normalize(EXACT)):f}"


def price_of(stored: Mapping[str, Any] | None) -> Price | None:
    """A price from its `wire`."""
    return None if stored is None else Price.model_validate(stored)
