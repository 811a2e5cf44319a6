"""Reward steps: the vectors of Chronus' equation 9, and what is refused."""

from __future__ import annotations

import pytest

from dlq_master.model.jobs.reward import BEST_EFFORT, attained, missed_share, soft, strict, wdmr

STEPS = ((10.0, 100.0), (11.0, 80.0), (12.0, 50.0), (15.0, 20.0))


def test_equation_9_is_the_attainment_and_wdmr_its_complement() -> None:
    """Rewards 100, 80, 50, 20 and 1: the printed formula gives 0.49697, the meant one 0.50303."""
    times = (10.0, 10.5, 12.0, 13.0, 99.0)
    assert [attained(STEPS, at) for at in times] == [100, 80, 50, 20, 1]
    missed = wdmr((STEPS, at) for at in times)
    assert missed is not None
    assert missed == pytest.approx(0.50303, abs=5e-6)
    assert 1 - missed == pytest.approx(0.49697, abs=5e-6)


def test_strict_soft_and_best_effort_are_cases_of_one_function() -> None:
    assert attained(strict(60), 60) == 100
    assert attained(strict(60), 60.1) == 1
    assert attained(BEST_EFFORT, 5) == 1
    assert missed_share(BEST_EFFORT, 5) == 0
    assert missed_share(soft([(5, 1)]), 9) == 0  # nothing to lose
    assert wdmr([(BEST_EFFORT, 5.0)]) is None


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([(0, 50)], "deadline 1 is 0 s"),
        ([(float("nan"), 50)], "deadline 1 is nan s"),
        ([(5, 101)], "reward 1 is 101"),
        ([(5, 0.5)], "reward 1 is 0.5"),
        ([(5, 50), (5, 40)], "deadline 2 is not after deadline 1"),
        ([(5, 50), (6, 60)], "reward 2 is more than reward 1"),
    ],
)
def test_a_wrong_step_is_named(steps: list[tuple[float, float]], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        soft(steps)
