"""What a seed chooses of a round."""

from __future__ import annotations

from tests.system.chaos.troubles import roles, schedule

SEEDS = [f"seed {n}" for n in range(40)]


def test_somebody_answers_clients_and_somebody_executes_whatever_the_seed() -> None:
    casts = [roles(seed) for seed in SEEDS]
    for cast in casts:
        assert len(cast) == 3
        assert {"all", "api"} & {*cast}
        assert {"all", "worker"} & {*cast}
    assert {role for cast in casts for role in cast} == {"all", "api", "worker"}
    assert len({*casts}) > 4


def test_a_seed_chooses_the_same_again() -> None:
    for seed in SEEDS:
        assert (roles(seed), schedule(seed, 60, 3)) == (roles(seed), schedule(seed, 60, 3))
