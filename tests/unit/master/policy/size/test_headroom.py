"""Elastic jobs leave GPUs free for deadlines that cannot wait for a boundary."""

from __future__ import annotations

import pytest

from dlq_master.model.cache import Memo
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import strict
from dlq_master.model.resources import Request
from dlq_master.policy.size.headroom import headroom
from support.builders import H100, World, a_job

SETTINGS = {"guarantee": "fitting", "be_floor": "0", "margin": "0"}
MINUTE = 60.0


def grows(job_id: int = 1) -> Job:
    request = Request(gpus=1, sizes=(1, 2, 4, 8, 16))
    return a_job(job_id, request=request, duration_estimate_s=40_000.0)


def urgent(job_id: int, gpus: int, at_s: float, run_s: float = MINUTE) -> Job:
    job = a_job(job_id, gpus, duration_estimate_s=run_s, steps=strict(1.4 * run_s))
    return job._replace(submit_time_s=at_s)


def width(world: World) -> int:
    return world.attempt(1).lease.allocation.width


def grown(gpus: int, run_s: float = MINUTE, **more: str) -> World:
    """Two nodes. A job of so many GPUs has come and gone when job 1 starts."""
    world = World("dlq", 2, None, **{**SETTINGS, **more})
    world.submit(urgent(2, gpus, 0.0, run_s)).decide()
    world.at(run_s).finish(2)
    world.at(2 * 1200.0)
    return world.submit(grows()).decide()


@pytest.mark.parametrize(
    ("gpus", "run_s", "more", "grows_to"),
    [
        (2, MINUTE, {}, 8),  # 16 would leave nothing
        (8, MINUTE, {}, 8),
        (16, MINUTE, {}, 8),  # half of the GPUs at most
        (8, 900.0, {}, 16),  # it can wait for a boundary
        (8, MINUTE, {"select": "guaranteed"}, 16),
    ],
)
def test_it_grows_into_all_gpus_but_those_of_the_widest_urgent_job(
    gpus: int, run_s: float, more: dict[str, str], grows_to: int
) -> None:
    assert width(grown(gpus, run_s, **more)) == grows_to


def test_the_next_urgent_job_starts_when_it_comes() -> None:
    world = grown(8).at(2500.0)
    world.submit(urgent(3, 8, world.now_s)).decide()
    assert world.running == [1, 3]


def test_without_deadlines_nothing_is_left() -> None:
    world = World("dlq", 2, None, **SETTINGS).submit(grows()).decide()
    assert width(world) == 16


def test_a_master_that_starts_amid_a_slot_leaves_as_many_free() -> None:
    world = grown(2)
    before = headroom(world.cluster, H100, world.policy.promises)
    world.submit(urgent(3, 8, world.now_s)).decide()  # it came within the slot
    world.cluster.memo = Memo()  # as after a start
    assert headroom(world.cluster, H100, world.policy.promises) == before == 2
