"""Work times of ranks, and scores of nodes, as values."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.policy.stragglers import (
    FRESH_S,
    HALF_S,
    MOST_STEPS,
    Excess,
    RankPart,
    SeenExcess,
    StragglerRule,
    StragglerScore,
    WorkTimes,
    excesses,
    score,
    suspects,
)

RULE = StragglerRule(0.05, 80)
SLOW, USUAL = Excess(log(1.1), 0.012, 200.0), Excess(0.0, 0.012, 200.0)


def times(step_s: float, steps: int = 200, noise: float = 0.05) -> WorkTimes:
    """Half of the steps are longer than usual, and half are shorter."""
    logs = [log(step_s) + (noise if step % 2 else -noise) for step in range(steps)]
    return WorkTimes(steps, sum(logs), sum(value * value for value in logs))


def seen(excess: Excess, job: str = "1", time_s: float = 0.0) -> SeenExcess:
    return SeenExcess(excess, job, time_s)


def of(
    mine: dict[RankPart, SeenExcess],
    others: dict[RankPart, list[SeenExcess]],
    now_s: float = 0.0,
    **more: bool,
) -> StragglerScore:
    found = score(RULE, mine, lambda part: others.get(part, []), now_s, **more)
    assert found is not None
    return found


def test_the_slow_rank_of_eight_stands_out_and_no_other() -> None:
    gang = {rank: times(1.1 if rank == 3 else 1.0) for rank in range(8)}
    found = excesses(gang, dict.fromkeys(range(8), "h100"))
    assert found[3].ratio_log == pytest.approx(log(1.1))
    assert all(abs(found[rank].ratio_log) < 1e-9 for rank in range(8) if rank != 3)
    assert all(0.005 < one.error < 0.03 for one in found.values())


def test_a_rank_is_compared_with_ranks_on_equal_gpus_only() -> None:
    gang = {rank: times(2.0 if rank > 3 else 1.0) for rank in range(9)}
    kinds = {rank: "v100" if rank > 3 else "h100" for rank in range(8)} | {8: "a100"}
    found = excesses(gang, kinds)
    assert set(found) == set(range(8)), "a rank without peers has no excess"
    assert all(abs(one.ratio_log) < 1e-9 for one in found.values())


def test_more_ranks_than_a_few_share_their_median() -> None:
    gang = {rank: times(1.1 if rank == 3 else 1.0) for rank in range(64)}
    found = excesses(gang, dict.fromkeys(range(64), "h100"))
    assert found[3].ratio_log == pytest.approx(log(1.1))
    assert found[4].ratio_log == pytest.approx(0.0)


def test_one_long_step_weighs_little() -> None:
    hiccup = times(1.0).plus(WorkTimes(1, log(20.0), log(20.0) ** 2))
    gang = {rank: hiccup if rank == 2 else times(1.0) for rank in range(8)}
    found = excesses(gang, dict.fromkeys(range(8), "h100"))
    assert found[2].ratio_log < 0.02


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30))
def test_older_steps_fade_and_the_sum_is_bounded(reports: list[int]) -> None:
    total = WorkTimes()
    for number, steps in enumerate(reports):
        total = total.plus(times(1.0 + number, steps))
    assert total.steps <= max(MOST_STEPS, reports[-1]) + 1e-6
    assert log(0.9) <= total.mean <= log(len(reports) + 0.2)


def test_a_node_that_was_slow_is_not_slow_for_ever() -> None:
    total = times(2.0, 5000)
    for _ in range(50):
        total = total.plus(times(1.0, 40))
    assert 0.0 <= total.mean < 0.005


def test_one_gang_suspects_a_node_and_says_that_the_job_may_be_the_cause() -> None:
    found = of({RankPart("f", 3): seen(SLOW)}, {})
    assert found.suspected
    assert not found.told_apart
    assert found.excess == pytest.approx(0.1)
    assert "rank 3 of job 1; no other node has had this part" in found.words


def test_a_part_with_more_work_everywhere_is_of_the_job() -> None:
    part = RankPart("f", 0)
    found = of({part: seen(SLOW)}, {part: [seen(SLOW, "2")]})
    assert not found.suspected
    assert found.told_apart
    assert found.excess == pytest.approx(0.0)


def test_a_part_that_is_slow_only_here_is_of_the_node() -> None:
    part = RankPart("f", 0)
    found = of({part: seen(SLOW)}, {part: [seen(USUAL, "2")]})
    assert found.suspected
    assert found.told_apart
    assert found.words == "rank 0 of job 1; compared with the same parts on other nodes"


def test_two_kinds_of_jobs_tell_it_apart_too() -> None:
    found = of({RankPart("f", 0): seen(SLOW), RankPart("g", 5): seen(SLOW, "2")}, {})
    assert found.suspected
    assert found.told_apart
    assert found.gangs == 2


def test_what_is_older_weighs_less_and_after_a_day_nothing() -> None:
    mine = {RankPart("f", 0): seen(SLOW), RankPart("g", 0): seen(USUAL, "2", 3 * HALF_S)}
    assert of(mine, {}, 3 * HALF_S).excess < 0.02
    assert score(RULE, {RankPart("f", 0): seen(SLOW)}, lambda _: (), FRESH_S + 1.0) is None


def test_a_clock_that_went_back_forgets_what_is_of_the_future() -> None:
    assert score(RULE, {RankPart("f", 0): seen(SLOW, time_s=100.0)}, lambda _: (), 50.0) is None


def test_a_doubtful_figure_suspects_nobody() -> None:
    assert not of({RankPart("f", 0): seen(Excess(log(1.1), 0.2, 80.0))}, {}).suspected
    assert not of({RankPart("f", 0): seen(Excess(log(1.04), 0.001, 400.0))}, {}).suspected


def test_a_suspect_stays_one_until_it_is_well_below_the_limit() -> None:
    near = {RankPart("f", 0): seen(Excess(log(1.04), 0.005, 400.0))}
    assert of(near, {}, suspected=True).suspected
    low = {RankPart("f", 0): seen(Excess(log(1.02), 0.005, 400.0))}
    assert not of(low, {}, suspected=True).suspected


def test_suspects_are_listed_the_slowest_first() -> None:
    slow = of({RankPart("f", 0): seen(SLOW)}, {})
    slower = of({RankPart("f", 1): seen(Excess(log(1.5), 0.012, 200.0))}, {})
    well = of({RankPart("f", 2): seen(USUAL)}, {})
    found = suspects({"a": slow, "b": well, "c": slower})
    assert [node for node, _ in found] == ["c", "a"]
