"""Open a model stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from uuid import UUID

from app.core.chunks import Chunk
from app.core.limits.options import ModelLimits
from app.core.opaque import PausedTurn
from app.core.prompt import Prompt
from app.core.usage.prices import Price


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """A registered model, ready to be called."""

    name: str
    """The name under which it is registered."""
    provider: str
    """Which provider module speaks to it."""
    model: str
    """The name on the wire."""
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The provider's own options, checked by `Provider.check` when the model was stored."""
    id: UUID | None = None
    """Which registered model it is; None for the operator's, whose names are their own."""
    limits: ModelLimits | None = None
    trusted: bool = False
    """Whether its address is the operator's own choice, and so may be a private one."""
    price: Price | None = None
    """What its tokens cost; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Opening:
    """One opening of a model stream."""

    endpoint: ModelEndpoint
    prompt: Prompt
    stream_index: int = 0
    """Which stream of its run on this model this is, from 0; counted by the run, so it survives recovery."""
    attempt: int = 1
    """Which attempt on this model, 1-based."""
    continue_from: str = ""
    """Text that the answer should go on from."""
    continue_prompt: str | None = None
    """What the model is told after that text; None is the provider's own way."""
    paused: PausedTurn | None = None
    """What the provider had said when it interrupted itself, with `paused` as its reason to stop."""


LATE: Final = "late"
"""The message with which a stream is cancelled whose answer has kept a limit waiting, and"""
HASTY: Final = "hasty"
"""where the limit was so short that it says as much of whoever set it."""


class Held(ABC):
    """A model stream that has to be let in before it is entered.

    No protocol: whether something has one's methods takes long to find out, and each stream is asked.
    """

    @abstractmethod
    async def admitted(self) -> None:
        """Wait for its turn; whoever has waited enters it. Raises `ProviderError`."""


class Provider(Protocol):
    """One wire format."""

    name: str
    """What `provider` of a registered model says."""
    adapter_id: str
    """What ADAPTER_DETECTED says."""

    def check(self, endpoint: ModelEndpoint) -> None:
        """Raise `Invalid` with pointers when the endpoint's options make no sense."""

    def capabilities(self, endpoint: ModelEndpoint) -> Capabilities:
        """What the endpoint can be asked for natively."""

    def open(self, opening: Opening) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Chunk]]]:
        """Ask, and give the answer as it comes: one sequence of chunks for each read from the network.

        Entering waits for the server to accept the request. Leaving closes the connection at once, also in
        the middle of an answer. Entering and iterating raise `ProviderError`. A cancelled wait leaves
        nothing behind.
        """


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an endpoint takes natively; what it does not is asked for in the prompt."""

    tools: bool = True
    response_schema: bool = True
    project_schema: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] | None = None
    """What the endpoint can safely be asked to enforce of a schema, None of it where that is nothing."""
    collects: bool = False
    """Whether an answer may take several messages, with the model's own work between them."""
