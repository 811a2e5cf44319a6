"""edf, edf-preemptive, genie and 3sigma: whose deadline goes first, and who leaves for whom, by
hand.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlq_baselines import three_sigma_program
from dlq_baselines.three_sigma import Chances
from dlq_baselines.three_sigma_program import SLOTS, StartOption, solved, uses
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import soft, strict
from support.builders import World, a_job

CHANCES = Chances((0.5, 1.0, 1.5))
PROGRAM = "3sigma plan=program"
SIZED = "genie sizes=chosen"
EACH = pytest.mark.parametrize(
    "policy", ["edf", "edf-preemptive", "genie", "3sigma", PROGRAM, SIZED]
)
NEVER_EACH_OTHER = pytest.mark.parametrize("policy", ["edf", "genie", "3sigma", PROGRAM, SIZED])


def a_world(policy: str) -> World:
    """Eight GPUs; behind the name may come settings."""
    name, *words = policy.split()
    return World(name, 1, None, preempt="free", **dict(word.split("=") for word in words))


def be(job_id: int, gpus: int = 8, runs_s: float = 100.0) -> Job:
    return a_job(job_id, gpus, duration_estimate_s=runs_s)


def slo(job_id: int, due_s: float, gpus: int = 8, runs_s: float | None = 10.0) -> Job:
    return a_job(job_id, gpus, steps=strict(due_s), duration_estimate_s=runs_s)


def order(world: World, *job_ids: int) -> list[int]:
    """In which order these jobs, all as wide as the cluster, get it."""
    served = []
    for _ in job_ids:
        (first,) = world.decide().running
        served.append(first)
        world.finish(first)
    return served


@EACH
def test_slo_jobs_preempt_best_effort_ones_and_not_the_other_way_round(policy: str) -> None:
    world = a_world(policy).submit(be(1)).at(0.0)
    world.submit(slo(2, 900.0)).at(1.0)
    assert world.running == [2]
    world.submit(be(3, runs_s=1.0)).at(2.0)
    assert world.running == [2]


@EACH
def test_who_was_preempted_comes_back_before_younger_best_effort_jobs(policy: str) -> None:
    world = a_world(policy).submit(be(1)).at(0.0)
    world.submit(be(2), slo(3, 900.0)).at(1.0)
    assert order(world, 1, 2, 3) == [3, 1, 2]


@EACH
def test_best_effort_jobs_do_not_preempt_each_other(policy: str) -> None:
    world = a_world(policy).submit(be(1)).at(0.0)
    world.submit(be(2, 4), slo(3, 900.0, gpus=4)).at(1.0)
    assert world.running == [2, 3]  # job 1 does not fit beside job 3, job 2 does
    world.finish(3).at(10.0)
    assert world.running == [2]  # though job 1 is older
    world.finish(2).at(20.0)
    assert world.running == [1]


@EACH
def test_no_more_best_effort_jobs_leave_than_have_to(policy: str) -> None:
    world = a_world(policy).submit(be(1, 4), be(2, 4)).at(0.0)
    world.submit(slo(3, 900.0, gpus=3)).at(1.0)
    assert world.running == [1, 3]


@NEVER_EACH_OTHER
def test_an_urgent_slo_job_waits_for_one_that_runs(policy: str) -> None:
    world = a_world(policy).submit(slo(1, 90_000.0, runs_s=1_000.0)).at(0.0)
    world.submit(slo(2, 20.0)).at(1.0)
    assert world.at(5.0).running == [1]


def test_under_edf_preemptive_the_earlier_deadline_takes_over() -> None:
    world = a_world("edf-preemptive").submit(slo(1, 500.0)).at(0.0)
    world.submit(slo(2, 600.0)).at(1.0)
    assert world.running == [1]
    world.submit(slo(3, 400.0)).at(2.0)  # due at 401 s, job 1 at 501 s
    assert world.running == [3]
    assert world.job(1).preemptions == 1


@pytest.mark.parametrize("policy", ["edf", "edf-preemptive"])
def test_the_earliest_deadline_counts_from_submission(policy: str) -> None:
    world = a_world(policy).submit(slo(9, 1.0)).at(50.0)
    for job_id, at_s, due_s in ((1, 150.0, 380.0), (2, 160.0, 360.0), (3, 200.0, 370.0)):
        world.now_s = at_s
        world.submit(slo(job_id, due_s - at_s))
    world.submit(be(4))
    assert order(world, 9, 1, 2, 3, 4) == [9, 2, 3, 1, 4]


@pytest.mark.parametrize("policy", ["edf", "edf-preemptive"])
def test_only_the_first_deadline_of_a_soft_job_counts_and_also_when_it_is_over(policy: str) -> None:
    world = a_world(policy).submit(slo(9, 1.0)).at(0.0)
    world.submit(a_job(1, 8, steps=soft([(100, 100), (900, 50)])), slo(2, 200.0)).at(0.0)
    assert order(world.at(150.0), 9, 1, 2) == [9, 1, 2]


def test_genie_goes_by_the_instant_at_which_a_job_has_to_start() -> None:
    world = a_world("genie").submit(slo(9, 1_000.0)).at(0.0)
    world.submit(slo(1, 60.0, runs_s=20.0))  # has to start at 40 s; the earliest deadline
    world.submit(slo(2, 100.0, runs_s=90.0))  # at 10 s
    world.submit(slo(3, 100.0, runs_s=130.0))  # too late from the start: at -30 s
    world.submit(slo(4, 1.0, runs_s=None), be(5))  # unknown: the last of the SLO jobs
    assert order(world, 9, 1, 2, 3, 4, 5) == [9, 3, 2, 1, 4, 5]


def width(world: World, job_id: int) -> int:
    """The GPUs that a running job holds."""
    return world.attempt(job_id).lease.allocation.width


def elastic(job_id: int, due_s: float, speeds: tuple[float, ...] = ()) -> Job:
    """100 s on 4 GPUs, and as many times faster on 2, 4 and 8 as is told (none: linear)."""
    sizes = (2, 4, 8)
    job = slo(job_id, due_s, gpus=4, runs_s=100.0)
    return job._replace(request=replace(job.request, sizes=sizes), speeds=speeds)


@pytest.mark.parametrize(
    ("due_s", "gpus"),
    [
        (250.0, 2),  # 200 s on 2 GPUs
        (150.0, 4),
        (60.0, 8),  # 50 s
        (20.0, 8),  # no size will do: the one on which it ends first
    ],
)
def test_genie_chooses_the_fewest_gpus_that_meet_the_deadline(due_s: float, gpus: int) -> None:
    world = a_world(SIZED).submit(elastic(1, due_s)).at(0.0)
    assert width(world, 1) == gpus
    assert width(a_world("genie").submit(elastic(1, due_s)).at(0.0), 1) == 4


def test_genie_goes_by_the_speeds_of_a_job() -> None:
    flat = elastic(1, 60.0, speeds=(0.9, 1.0, 1.0))
    assert width(a_world(SIZED).submit(flat).at(0.0), 1) == 4  # 8 GPUs are no faster


def test_genie_chooses_anew_while_a_job_waits_and_not_while_it_runs() -> None:
    world = a_world(SIZED).submit(slo(9, 1_000.0)).at(0.0)
    world.submit(elastic(1, 250.0), be(2, 4)).at(1.0)
    assert width(world.finish(9).at(120.0), 1) == 4  # on 2 GPUs it would end too late by now
    assert world.submit(elastic(3, 1_000.0)).at(121.0).running == [1, 3]
    assert (width(world, 1), width(world, 3)) == (4, 2)


def test_under_genie_a_best_effort_job_gets_what_it_asks_for() -> None:
    job = be(1, 4)
    world = a_world(SIZED).submit(job._replace(request=replace(job.request, sizes=(2, 4, 8))))
    assert width(world.at(0.0), 1) == 4


def test_genie_counts_what_has_been_done() -> None:
    world = a_world("genie").submit(slo(9, 1_000.0)).at(0.0)
    world.submit(slo(1, 100.0, runs_s=40.0))  # has to start at 60 s
    world.submit(slo(2, 100.0, runs_s=90.0)._replace(total_executed_s=60.0, worked_s=60.0))  # 70 s
    assert order(world, 9, 1, 2) == [9, 1, 2]


def test_3sigma_goes_by_reward_for_each_gpu_second() -> None:
    world = a_world("3sigma").submit(slo(9, 1_000.0)).at(0.0)
    world.submit(slo(1, 500.0, runs_s=50.0))  # 99 / (8 x 50)
    world.submit(slo(2, 500.0, runs_s=40.0))  # 99 / (8 x 40)
    world.submit(slo(3, 300.0, runs_s=60.0))  # 99 / (8 x 60), though its deadline is the first
    assert order(world, 9, 1, 2, 3) == [9, 2, 1, 3]


def test_3sigma_counts_the_gpus_beside_the_seconds() -> None:
    world = a_world("3sigma").submit(slo(9, 1_000.0)).at(0.0)
    world.submit(slo(1, 500.0, runs_s=40.0), slo(2, 500.0, gpus=4, runs_s=60.0))
    assert world.finish(9).decide().running == [2]  # 240 GPU-seconds, against 320


def test_3sigma_counts_the_steps_that_can_still_be_reached() -> None:
    world = a_world("3sigma").submit(slo(9, 1_000.0)).at(0.0)
    world.submit(a_job(1, 8, steps=soft([(50, 100), (400, 50)]), duration_estimate_s=40.0))
    world.submit(slo(2, 400.0, runs_s=60.0))
    # At 20 s job 1 ends at 60 s: 49 / (8 x 40) is less than 99 / (8 x 60).
    assert order(world.at(20.0), 9, 1, 2) == [9, 2, 1]


@pytest.mark.parametrize("policy", ["3sigma", PROGRAM])
def test_under_3sigma_who_can_earn_nothing_any_more_takes_nobodys_gpus(policy: str) -> None:
    world = a_world(policy).submit(be(1), slo(2, 900.0)).at(0.0)
    world.submit(slo(3, 15.0, runs_s=10.0)).at(0.0)
    world.finish(2).at(8.0)
    assert world.running == [1]  # job 3 would end at 18 s
    assert order(world, 1, 3) == [1, 3]


def test_expected_reward_of_a_distribution_by_hand() -> None:
    job = slo(1, 120.0, runs_s=100.0)  # 50, 100 or 150 s
    assert CHANCES.of(job, 0.0) == pytest.approx((66.0, 100.0))  # two of three make it
    assert CHANCES.of(job, 40.0) == pytest.approx((33.0, 100.0))
    assert CHANCES.of(job, 80.0) == pytest.approx((0.0, 100.0))


def test_who_has_outlived_its_distribution_is_expected_to_take_as_long_again() -> None:
    job = slo(1, 400.0, runs_s=100.0)
    assert CHANCES.of(job._replace(worked_s=90.0, total_executed_s=90.0), 0.0) == (99.0, 35.0)
    assert CHANCES.of(job._replace(worked_s=160.0, total_executed_s=160.0), 0.0) == (99.0, 160.0)


def test_an_estimate_beyond_the_deadline_is_distrusted_and_not_the_deadline() -> None:
    job = slo(1, 80.0, runs_s=100.0)
    # 50 s: 99; 100 s is 0.2 estimates late: 79.2; 150 s is 0.7 late: 29.7.
    assert CHANCES.of(job, 0.0) == pytest.approx((69.3, 100.0))
    assert Chances().of(job, 0.0) == (0.0, 100.0)  # known exactly: there is nothing to distrust


def test_the_distribution_is_as_wide_as_it_is_said_to_be() -> None:
    ratios = Chances.normal(0.2).ratios
    assert ratios == tuple(sorted(ratios))
    assert sum(ratios) / len(ratios) == pytest.approx(1.0)
    assert ratios[-1] - 1.0 == pytest.approx(0.2 * 1.5932, abs=1e-3)  # z of 17 / 18
    assert Chances.normal(1.0).ratios[0] == 0.1
    assert World("3sigma", know="profiled", errors="0").policy.order == Chances()
    assert World("3sigma", know="profiled").policy.order == Chances.normal(0.2)
    assert World("3sigma").policy.order == Chances()  # `known` is exact


# --- the program of 3Sigma ------------------------------------------------------------------------


def test_the_program_keeps_gpus_for_a_wide_job_that_starts_later() -> None:
    """Job 3 can start when job 1 ends, and has no time to lose. Job 2 would still run then."""
    rows = slo(1, 900.0, gpus=4, runs_s=800.0), be(2, gpus=4, runs_s=90_000.0)
    wide = slo(3, 5_000.0, runs_s=4_000.0)
    greedy = a_world("3sigma").submit(rows[0], wide).at(0.0).submit(rows[1]).at(1.0)
    assert greedy.running == [1, 2]
    world = a_world(PROGRAM).submit(rows[0], wide).at(0.0).submit(rows[1]).at(1.0)
    assert world.running == [1]
    assert world.finish(1).at(800.0).running == [3]
    assert world.finish(3).at(4_800.0).running == [2]


def test_the_program_lets_a_short_job_start_before_a_wide_one() -> None:
    """The same, with a job 2 that has ended by then."""
    world = a_world(PROGRAM).submit(
        slo(1, 900.0, gpus=4, runs_s=800.0), slo(3, 5_000.0, runs_s=4e3)
    )
    world.at(0.0).submit(be(2, gpus=4, runs_s=700.0))
    assert world.at(1.0).running == [1, 2]


def test_the_program_takes_the_set_of_jobs_that_earns_most() -> None:
    """Two jobs of 4 GPUs earn 99 each, and one of 6 GPUs earns most for each GPU-second."""
    jobs = (
        slo(1, 4_000.0, 6, runs_s=2_000.0),
        slo(2, 4_000.0, 4, 3_500.0),
        slo(3, 4_000.0, 4, 3_500.0),
    )
    assert a_world("3sigma").submit(*jobs).at(0.0).running == [1]
    assert a_world(PROGRAM).submit(*jobs).at(0.0).running == [2, 3]


def test_in_the_program_a_job_uses_gpus_with_the_chance_that_it_still_runs() -> None:
    left = CHANCES.left_s(1_800.0, 0.0)  # 900, 1,800 or 2,700 s
    options = {at: StartOption(slo(at, 1.0, 8), 0, 1.0, [8.0]) for at in (1, 2)}
    assert list(uses(slo(1, 1.0, 6), left))[:4] == [6.0, 4.0, 2.0, 0.0]
    assert list(uses(slo(1, 1.0, 6), None)) == [6.0] * SLOTS
    assert solved([*options.values()], [8.0] * SLOTS, 60.0) == [options[1]]
    both = [options[1], options[2]._replace(slot=1)]
    assert solved(both, [8.0] * SLOTS, 60.0) == both


def test_without_an_answer_of_the_program_the_greedy_order_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(three_sigma_program, "solved", lambda *_: None)
    jobs = (
        slo(1, 4_000.0, 6, runs_s=2_000.0),
        slo(2, 4_000.0, 4, 3_500.0),
        slo(3, 4_000.0, 4, 3_500.0),
    )
    assert a_world(PROGRAM).submit(*jobs).at(0.0).running == [1]
