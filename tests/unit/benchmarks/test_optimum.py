"""The exact optimum of small instances, against every plan there is."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import pytest
from benchmarks.papers.small.cases import FITTED, GPUS, HELD_OUT, Instance, SmallJob, instances
from benchmarks.papers.small.optimum import least_h, reached_h


def by_trying_all(case: Instance) -> int:
    """The same without a bound, over all sets that fit, also with GPUs left for others."""

    @cache
    def from_here(now_h: int, left: tuple[int, ...]) -> int:
        there = [at for at, job in enumerate(case) if left[at] and job.submit_h <= now_h]
        if not any(left):
            return 0
        sets = [
            chosen
            for count in range(len(there) + 1)
            for chosen in combinations(there, count)
            if sum(case[at].gpus for at in chosen) <= GPUS and (chosen or not there)
        ]
        return len(there) + min(
            from_here(now_h + 1, tuple(h - (at in chosen) for at, h in enumerate(left)))
            for chosen in sets
        )

    return from_here(0, tuple(job.hours for job in case))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["mixed", "wide"])
def test_no_plan_is_better(kind: str, seed: int) -> None:
    case = [*instances(kind, FITTED, 5)][seed][:4]
    assert least_h(case) == by_trying_all(case)


def test_the_worst_instance_that_strangers_found() -> None:
    rows = ((0, 4, 3), (1, 1, 4), (1, 4, 2), (2, 2, 1), (5, 2, 4), (6, 1, 3))
    case = tuple(SmallJob(*row) for row in rows)
    known = ["know=known", "save_s=0", "resume_s=0"]
    assert reached_h(case, "dlq", known) <= 1.02 * least_h(case)
    assert reached_h(case, "dlq", [*known, "foresight=off"]) >= 1.2 * least_h(case)


def test_what_is_judged_is_not_what_was_fitted() -> None:
    assert not {*instances("mixed", FITTED)} & {*instances("mixed", HELD_OUT)}
