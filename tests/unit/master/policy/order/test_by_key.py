"""sf, srtf and srsf: who goes first, by hand."""

from __future__ import annotations

import pytest

from dlq_common.errors import ConfigError
from dlq_master.control.placement.policies import policy_of
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.policy import Know
from dlq_master.policy.reasons.explain import explain, jobs_ahead
from support.builders import World, a_job
from support.master_harness import config_of


def a_world(policy: str) -> World:
    return World(policy, nodes=1, preempt="free")  # eight GPUs


@pytest.mark.parametrize(
    ("policy", "first"),
    [
        ("sf", 2),  # 1 GPU
        ("lf", 1),  # 8 GPUs
        ("srtf", 1),  # 15 s
        ("srsf", 3),  # 80 GPU-seconds, against 100 and 120
    ],
)
def test_each_order_prefers_what_its_name_says(policy: str, first: int) -> None:
    world = a_world(policy).submit(a_job(9, 8, duration_estimate_s=1.0)).decide()
    world.submit(
        a_job(1, 8, duration_estimate_s=15.0),
        a_job(2, 1, duration_estimate_s=100.0),
        a_job(3, 4, duration_estimate_s=20.0),
    )
    world.settle_moves()
    view = View(world.cluster, 1.0)
    ahead = [jobs_ahead(view, world.policy, world.job(n).job_id) for n in (1, 2, 3)]
    assert ahead[first - 1] == 0
    assert set(ahead) == {0, 1, 2}


def test_what_has_run_no_longer_counts() -> None:
    world = a_world("srtf").submit(a_job(1, 8, duration_estimate_s=100.0)).at(0.0)
    world.submit(a_job(2, 8, duration_estimate_s=50.0)).at(49.0)
    assert world.running == [2]  # 51 s are left of job 1
    world.finish(2).at(60.0)
    world.submit(a_job(3, 8, duration_estimate_s=50.0)).at(69.0)
    assert world.running == [1]  # it ran 49 + 9 s: 42 s are left
    assert world.job(1).preemptions == 1


def test_ties_keep_the_order_of_arrival() -> None:
    world = a_world("sf").submit(a_job(2, 8), a_job(1, 8)).decide()
    assert world.running == [2]
    world.submit(a_job(3, 8)).decide().finish(2).decide()
    assert world.running == [1]


def test_a_job_whose_run_time_nobody_knows_comes_last() -> None:
    world = a_world("srtf").submit(a_job(1, 8), a_job(2, 8, duration_estimate_s=1e6)).decide()
    assert world.running == [2]


def test_work_that_was_lost_has_to_be_done_again() -> None:
    world = a_world("srtf")
    world.submit(a_job(1, 8, duration_estimate_s=100.0, total_executed_s=90.0, lost_gpu_s=640.0))
    world.submit(a_job(2, 8, duration_estimate_s=60.0)).decide()
    assert world.running == [2]  # 80 of the 90 s are lost


def test_queues_go_before_keys() -> None:
    world = (
        a_world("sf").submit(a_job(1, 8, priority_base=0), a_job(2, 1, priority_base=1)).decide()
    )
    assert world.running == [1]


def test_without_free_preemption_work_is_taken_at_the_boundary_only() -> None:
    world = World("srtf", nodes=1).submit(a_job(1, 8, duration_estimate_s=900.0)).at(0.0)
    world.submit(a_job(2, 8, duration_estimate_s=10.0)).at(100.0)
    assert world.running == [1]
    reasons = explain(View(world.cluster, 100.0), world.policy, world.job(2).job_id)
    assert ReasonCode.WAITING_FOR_BOUNDARY in {reason.code for reason in reasons}
    assert world.wake_at_s is not None
    world.at(world.wake_at_s)
    assert world.leaving == [1]
    world.leave(1).decide()
    assert world.running == [2]


def test_the_master_refuses_what_only_a_simulation_can_know() -> None:
    with pytest.raises(ConfigError, match="know = 'known': how long every job will run"):
        policy_of(config_of("srtf", know="known"))


@pytest.mark.parametrize("policy", ["srtf", "srsf", "themis", "genie", "afs", "aryl"])
def test_the_master_goes_by_what_users_say_of_run_times(policy: str) -> None:
    assert policy_of(config_of(policy)).know is Know.UNKNOWN


def test_the_master_may_put_the_smallest_first() -> None:
    assert policy_of(config_of("sf")).name == "sf"
