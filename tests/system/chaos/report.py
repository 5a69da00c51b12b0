"""What a round of chaos came to, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.system.chaos.evidence import Evidence
from tests.system.chaos.troubles import Role, Trouble


@dataclass(slots=True)
class Round:
    """One stretch of chaos, and what was found in it."""

    seed: str
    troubles: Sequence[Trouble]
    roles: Sequence[Role]
    settled_s: float = 0.0
    """How long the last runs took when nothing befell any more."""
    violations: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)

    def count(self, seen: Evidence, fared: Counter[str]) -> None:
        """Take the figures of what is left."""
        runs, wishes = seen.runs, seen.wishes
        found = Counter({"runs": len(runs), "refused": sum(wish.refused for wish in wishes)})
        for recorded in runs:
            found[f"{recorded.run['kind']} {recorded.run['status']} {recorded.code or ''}".strip()] += 1
            types = recorded.types
            found["events"] += len(types)
            found["runs that queued"] += "RUN_QUEUED" in types
            for kind in ("RUN_WAITING", "RUN_RECOVERED", "RETRY_ATTEMPT", "CONTINUATION_START"):
                found[kind] += types.count(kind)
            found.update(f"call {call['function']} {call['status']}" for call in recorded.calls)
        found["streams"] = sum(wish.streams for wish in wishes)
        found["streams gone on with"] = sum(max(0, wish.streams - 1) for wish in wishes)
        found["requests repeated and recognized"] = sum(wish.replays for wish in wishes)
        wanted = {wish.task for wish in wishes if wish.cancel_sent}
        to_end = {run_id for wish in wishes for run_id in wish.to_end}
        replaced = {recorded.replaces for recorded in runs}
        found["runs cancelled by nobody"] = sum(
            recorded.run["status"] == "cancelled"
            and recorded.key not in wanted
            and recorded.id not in replaced
            for recorded in runs
        )
        found["cancellations"] = sum(wish.cancel_sent for wish in wishes)
        found["cancellations when a replica was hit"] = sum(w.cancel_sent and w.cancel_amid for w in wishes)
        found["runs to end that were taken over"] = sum(
            recorded.id in to_end and "RUN_RECOVERED" in recorded.types for recorded in runs
        )
        found["runs replaced"] = len({recorded.replaces for recorded in runs} - {None})
        found["runs rolled back"] = sum(recorded.superseded for recorded in runs)
        found["requests sent several times at once"] = sum(wish.twins > 0 for wish in wishes)
        found.update(f"wished {wish.kind}" for wish in wishes)
        found.update(f"wished if_busy {wish.if_busy}" for wish in wishes)
        found.update(f"replica of role {role}" for role in self.roles)
        found["requests to the model"] = len(seen.model_requests)
        found["posts to tools"] = len(seen.tool_requests)
        found.update(f"trouble {trouble.kind}" for trouble in self.troubles)
        found.update({f"answered {way}": count for way, count in fared.items()})
        self.figures = dict(sorted(found.items()))

    @property
    def plan(self) -> str:
        """Its seed and what is to befall."""
        told = f"seed {self.seed!r}, replicas of the roles {', '.join(self.roles)}"
        return "\n".join([told, "", *(f"    {trouble}" for trouble in self.troubles)])

    def __str__(self) -> str:
        lines = [self.plan, ""]
        lines += [f"- {name}: {count}" for name, count in self.figures.items()]
        lines += ["", f"The last runs took {self.settled_s:.1f} s when all was well again."]
        lines += ["", f"{len(self.violations)} violations", *(f"- {told}" for told in self.violations)]
        return "\n".join(lines)


def report(rounds: Sequence[Round]) -> str:
    """All rounds as Markdown, the sum of their figures first."""
    total: Counter[str] = Counter()
    for one in rounds:
        total.update(one.figures)
    broken = [one for one in rounds if one.violations]
    lines = [f"# Chaos: {len(rounds)} rounds, {len(broken)} with violations", ""]
    lines += [f"- {name}: {count}" for name, count in sorted(total.items())]
    return "\n".join(lines) + "".join(f"\n\n## Round {n}: {one}" for n, one in enumerate(rounds, 1)) + "\n"
