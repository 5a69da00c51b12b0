"""What is said to whoever has reached a limit of a key or project."""

from __future__ import annotations

from decimal import Decimal
from math import ceil
from typing import Any, Final

from app.core.errors import TooMany
from app.core.limits.quota import LimitName, Standing, policy_of
from app.core.usage.prices import text_of

RUNS_AGAIN_S: Final = 1
"""After how long to try again where nobody knows when a run ends."""


def plain(amount: int | Decimal) -> int | str:
    """A number as JSON has it: money as decimal text."""
    return amount if isinstance(amount, int) else text_of(amount)


class LimitReached(TooMany):
    """A limit of the key or of its project is reached."""

    def __init__(self, standing: Standing) -> None:
        name, again_s = standing.limit, standing.resets_s
        retry_after_s = RUNS_AGAIN_S if again_s is None else max(ceil(again_s), 1)
        told: dict[str, Any] = {
            "owner": standing.owner.value,
            "name": name.value,
            "quota": plain(standing.quota),
            "used": plain(standing.used),
            "resets_in_s": None if again_s is None else retry_after_s,
        }
        words = _WORDS[name].format(**told, again_s=retry_after_s)
        super().__init__(
            words,
            extra={"limit": told, "violated-policies": [policy_of(standing.owner, name)]},
            retry_after_s=retry_after_s,
        )
        self.standing = standing


class RequestLimitReached(LimitReached):
    """The key or its project has made the requests of this minute."""

    code = "request_limit_reached"


class RunLimitReached(LimitReached):
    """The key or its project has as many runs that have not ended as it may have."""

    code = "run_limit_reached"


class TokenLimitReached(LimitReached):
    """The key or its project has used the tokens of this day."""

    code = "token_limit_reached"


class CostLimitReached(LimitReached):
    """The key or its project has spent the money of this day."""

    code = "cost_limit_reached"


_WORDS: Final = {
    LimitName.REQUESTS: "The {owner} may make {quota} requests a minute; this minute ends in {again_s} s.",
    LimitName.RUNS: "The {owner} may have {quota} runs that have not ended, and has {used}: wait for one "
    "to end, or cancel one.",
    LimitName.TOKENS: "The {owner} may use {quota} tokens a day, and has used {used}; this day ends in "
    "{again_s} s, at midnight UTC.",
    LimitName.COST: "The {owner} may spend {quota} US dollars a day, and has spent {used}; this day ends in "
    "{again_s} s, at midnight UTC.",
}

_KINDS: Final[dict[LimitName, type[LimitReached]]] = {
    LimitName.REQUESTS: RequestLimitReached,
    LimitName.RUNS: RunLimitReached,
    LimitName.TOKENS: TokenLimitReached,
    LimitName.COST: CostLimitReached,
}


def refusal(standing: Standing) -> LimitReached:
    """The error for a limit that is reached."""
    return _KINDS[standing.limit](standing)
