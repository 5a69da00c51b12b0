"""The body of consensus, as clients send it."""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from app.core.consensus.decide import Conflict, Rules, Strategy
from app.core.json_schema_member import SchemaMember
from app.core.operate.lifecycle import LifecycleBody
from app.core.operate.request import IfBusy

MIN_VOTERS: Final = 2
MAX_VOTERS: Final = 16

ModelName = Annotated[str, Field(min_length=1)]
Part = Annotated[float, Field(ge=0, le=1)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Voter(_Body):
    """A model that is asked, and how much its word counts."""

    model: ModelName = Field(description="Name of a registered model.")
    weight: float = Field(1.0, gt=0, le=1_000, description="Relative to those of the others.")


def _form_of(voter: Any) -> str:
    return "name" if isinstance(voter, str) else "voter"


VoterBody = Annotated[
    Annotated[ModelName, Tag("name")] | Annotated[Voter, Tag("voter")], Discriminator(_form_of)
]


class ConsensusRequest(_Body):
    """Ask several models the same, and find what they agree on."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "instruction": "Is the sea salty? Answer yes or no.",
                    "voters": ["local", "small", {"model": "large", "weight": 2}],
                    "strategy": "majority",
                    "conflict": "vote",
                }
            ]
        }
    )

    branch_id: UUID | None = Field(
        None,
        strict=False,
        description="The branch that the instruction and its answer belong to; its conversation is shown to "
        "every voter. Without one the run stands alone and keeps no conversation.",
    )
    instruction: Any = Field(description="What the models are asked; usually text, any JSON value.")
    guidance: Any = Field(None, description="How they should go about it.")
    context: Any = Field(None, description="What they should know.")
    system: str | None = Field(None, description="The system text; the branch's by default.")
    voters: Annotated[list[VoterBody], Field(min_length=MIN_VOTERS, max_length=MAX_VOTERS)] = Field(
        description="The models that are asked: names, or objects with a weight. One may stand there twice."
    )
    strategy: Strategy = Field(
        "majority",
        description="What counts as agreement: every voter, a majority of the weight, the heaviest group "
        "whatever it weighs, or the voter with the most weight.",
    )
    conflict: Conflict = Field(
        "vote",
        description="What decides without agreement: the group with the most voters, a value merged of all, "
        "the voter with the most weight, or nothing (the run fails).",
    )
    threshold: Part = Field(0.8, description="Similarity from which on two outputs count as alike.")
    minimum_agreement: Part = Field(0.6, description="Part of all voters' weight that a majority needs.")
    response_format: SchemaMember | None = Field(
        None,
        description="JSON Schema 2020-12 that every output has to satisfy; one that does not is left out.",
    )
    model_options: dict[str, Any] = Field(
        default_factory=dict,
        description="Sampling options in the providers' own words.",
        examples=[{"temperature": 0}],
    )
    lifecycle: LifecycleBody | None = Field(
        None, description="For every voter; `max_model_calls` and `context` are the whole run's."
    )
    if_busy: IfBusy = Field(
        "enqueue",
        description="When the branch has an active run: `enqueue` waits for its end, `reject` is a 409, "
        "`interrupt` has it cancelled and takes its place, and `rollback` leaves what it said out of the "
        "conversation, too.",
    )

    @field_validator("instruction")
    @classmethod
    def _says_something(cls, value: Any) -> Any:
        if value is None or (isinstance(value, str) and not value.strip()):
            raise ValueError("there is nothing in it")
        return value

    @property
    def electorate(self) -> list[Voter]:
        """The voters, all in the long form."""
        return [Voter(model=voter) if isinstance(voter, str) else voter for voter in self.voters]

    @property
    def rules(self) -> Rules:
        """How the consensus is to be found."""
        return Rules(self.strategy, self.conflict, self.threshold, self.minimum_agreement)
