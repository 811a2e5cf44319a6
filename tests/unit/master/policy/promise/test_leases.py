"""RL, DL and rounded widths: vectors."""

from __future__ import annotations

import pytest

from dlq_master.model.jobs.reward import soft, strict
from dlq_master.policy.promise.capacity.leases import (
    Grid,
    SloJob,
    before,
    needed,
    round_up,
    usable,
    within,
)


def test_rl_and_dl_as_chronus_prints_them() -> None:
    """R=25, T=20 needs 2 leases; D=45 has 2, D=39 only 1 although 25 < 39."""
    assert needed(25, 20) == 2
    assert before(45, 20) == 2
    assert before(39, 20) == 1
    assert needed(0.1 + 0.2, 0.3) == 1  # the noise of doubles is no lease
    assert before(0.3, 0.1) == 3


def test_the_last_lease_is_needed_only_for_the_rest() -> None:
    assert usable(39, 25, 20) == 2
    assert usable(25, 25, 20) == 2
    assert usable(24.9, 25, 20) == 1
    assert usable(45, 40, 20) == 2


def test_widths_that_consolidate() -> None:
    assert [round_up(gpus) for gpus in range(1, 9)] == [1, 2, 4, 4, 8, 8, 8, 8]
    assert {round_up(gpus) for gpus in range(9, 17)} == {16}
    assert {round_up(gpus) for gpus in range(17, 25)} == {24}
    assert round_up(25) == 32
    assert [round_up(gpus, 6) for gpus in range(1, 8)] == [1, 2, 4, 4, 6, 6, 12]


@pytest.mark.parametrize(("whole", "reach"), [(True, [1]), (False, [0, 1])])
def test_steps_in_reach(whole: bool, reach: list[int]) -> None:
    grid = Grid(term_s=20, capacity=(8,), whole_leases=whole)
    job = SloJob(key="a", gpus=1, work_s=25, steps=soft([(39, 100), (45, 50)]))
    assert list(within(job, grid)) == reach
    assert not within(SloJob(key="b", gpus=9, work_s=25, steps=strict(99)), grid)
