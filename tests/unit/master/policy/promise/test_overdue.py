"""Who was to end when its slot does, and does not: whose GPUs wait for that, and for how long."""

from __future__ import annotations

from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import strict
from support.builders import World, a_job


def promised(job_id: int, gpus: int, run_s: float, due_s: float) -> Job:
    return a_job(job_id, gpus, duration_estimate_s=run_s, steps=strict(due_s))


def a_world(*others: Job, policy: str = "dlq") -> World:
    """One node; job 1 is to end 5 s before slot 1 begins, and its 4 GPUs are others' then."""
    world = World(
        policy, 1, None, margin="0", be_floor="0", guarantee="fitting", select="guaranteed"
    )
    world.submit(promised(1, 4, 1190.0, 3700.0)).at(5.0)
    world.submit(*others).at(10.0)
    return world.submit(a_job(3, 4, duration_estimate_s=1e5)).at(30.0)


def boundary(world: World, at_s: float) -> World:
    """Who is told to leave has left at once."""
    world.at(at_s)
    world.leave(*world.leaving)
    return world.at(at_s)


def test_nobody_waits_for_the_gpus_of_who_should_have_ended_long_ago() -> None:
    world = a_world(promised(2, 8, 1100.0, 2500.0))
    assert (world.job(2).promised, world.running) == (None, [1, 3])
    for at_s in (270.0, 570.0, 870.0, 1170.0):
        boundary(world, at_s)
    assert (world.job(1).band, world.running) == (Band.SLO, [1]), "job 2 waits for both of them"
    boundary(world, 1200.0)
    assert world.running == [1, 3], "nobody knows when job 1 ends: job 3 need not wait with job 2"
    world.finish(1)
    boundary(world, 1470.0)
    assert world.running == [2]
