"""The race tells a ratio only of quiet pairs, with its interval, and judges no goal that the load
could have decided.
"""

from __future__ import annotations

import math

import pytest
from benchmarks.race.pairs import LOUD, MET, MISSED, OPEN, Goals, Row, Turn, ratio


def turn(value: float, others: float = 0.0, controller_ms: float = 0.5) -> Turn:
    return Turn(value, controller_ms, 2.0, others, 0.0)


def row(slurm: list[Turn], dlq: list[Turn], goals: Goals | None = None, more: bool = False) -> Row:
    return Row(
        "line", "name", "ms", "how",
        more_is_better=more, goals=goals or Goals(), slurm=slurm, dlq=dlq,
    )  # fmt: skip


def test_the_ratio_is_the_geometric_mean_with_students_interval() -> None:
    found = ratio([1.0, 4.0])
    assert found.times == pytest.approx(2.0)
    reach = 12.706 * (math.log(4.0) / math.sqrt(2)) / math.sqrt(2)  # one degree of freedom
    assert found.low == pytest.approx(2.0 * math.exp(-reach))
    assert found.high == pytest.approx(2.0 * math.exp(reach))


def test_equal_pairs_have_no_spread() -> None:
    found = ratio([2.0] * 20)
    assert found.low == pytest.approx(2.0)
    assert found.high == pytest.approx(2.0)


def test_one_pair_has_no_interval() -> None:
    assert ratio([3.0]).low is None
    assert "one pair" in ratio([3.0]).words()


def test_dlq_is_ahead_by_less_time_and_by_more_of_a_rate() -> None:
    slow, quick = [turn(30.0)] * 3, [turn(10.0)] * 3
    by_time, by_rate = row(slow, quick).ratio, row(quick, slow, more=True).ratio
    assert by_time is not None
    assert by_rate is not None
    assert by_time.times == pytest.approx(3.0)
    assert by_rate.times == pytest.approx(3.0)


def test_a_pair_counts_only_if_both_turns_were_quiet() -> None:
    loud = 2 * LOUD
    slurm = [turn(10.0), turn(99.0, loud), turn(10.0), turn(10.0), turn(10.0)]
    dlq = [turn(5.0), turn(5.0), turn(1.0, loud), turn(5.0), turn(5.0)]
    found = row(slurm, dlq)
    assert len(found.pairs()) == 3
    assert found.ratio is not None
    assert found.ratio.times == pytest.approx(2.0)
    assert found.refusal == ""


def test_with_too_few_quiet_pairs_there_is_no_ratio_but_a_reason() -> None:
    loud = turn(10.0, 0.4)
    found = row([turn(10.0), turn(10.0), loud, loud, loud], [turn(5.0)] * 5)
    assert found.ratio is None
    assert "2 quiet pairs of 5" in found.refusal
    assert "40 %" in found.refusal
    assert found.facts()["ratio"] is None


def test_stolen_time_is_as_loud_as_other_work() -> None:
    assert not Turn(1.0, 0.0, 0.0, LOUD / 2, LOUD).quiet


@pytest.mark.parametrize(
    ("dlq_ms", "verdict"),
    [([5.0, 5.0, 5.1], MET), ([11.0, 11.0, 11.1], MISSED), ([4, 9, 16], OPEN)],
)
def test_a_goal_against_slurm_is_judged_by_the_whole_interval(
    dlq_ms: list[float], verdict: str
) -> None:
    found = row([turn(10.0)] * 3, [turn(each) for each in dlq_ms], Goals(ahead=1.2))
    assert found.verdict() == verdict


@pytest.mark.parametrize(
    ("value", "others", "verdict"), [(4, 0, MET), (6, 0, MISSED), (4, 0.5, MET), (6, 0.5, OPEN)]
)
def test_load_excuses_a_missed_bound_and_spoils_no_met_one(
    value: float, others: float, verdict: str
) -> None:
    assert row([], [turn(value, others)], Goals(at_most=5)).verdict() == verdict


def test_every_goal_of_a_row_counts() -> None:
    goals = Goals(at_most=15, controller_ms=0.4)
    assert row([], [turn(10.0, controller_ms=0.5)], goals).verdict() == MISSED
    assert goals.words("ms") == "<= 15 ms, controller <= 0.4 ms CPU"


def test_a_row_without_a_goal_has_no_verdict() -> None:
    assert row([turn(1.0)], [turn(1.0)]).verdict() == ""


def test_the_values_shown_are_those_of_quiet_turns() -> None:
    assert Row.middle([turn(1.0), turn(50.0, 0.5), turn(70.0, 0.5)], "value") == 1.0
    assert Row.middle([turn(50.0, 0.5), turn(70.0, 0.5)], "value") == 60.0
