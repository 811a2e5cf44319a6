"""When a trial is over: so many seconds of running, whatever was done in them."""

from __future__ import annotations

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.lease import Terms
from dlq_master.model.order.order import Ordering
from dlq_master.policy.policy import Know
from dlq_simulator.replay.estimates import Estimates
from dlq_simulator.workload import TraceJob
from dlq_simulator.world.course import Course
from dlq_simulator.world.knowledge import Knowledge

JOB = JobId(1)


def trial_ends(rate: float) -> float | None:
    """A trial of 100 s: 40 s at this speed from 0 s, and the rest at speed 1 from 60 s, after 30 s
    to resume."""
    known = Knowledge(know=Know.PROFILED, profile_s=100)
    estimates = Estimates(known, Cluster(Ordering(), Terms()))
    course = Course(TraceJob(job_id="1", submit_time_s=0, num_gpus=1, duration_s=1000))
    course.start(1, 0, 30, rate, 1)
    assert estimates.started(JOB, course, 0) == 100
    course.stop(40)
    course.leave(50)
    course.start(2, 60, 30, 1, 1)
    return estimates.started(JOB, course, 60)


def test_a_trial_is_time_on_gpus_however_much_was_done_in_it() -> None:
    assert trial_ends(1) == 90 + 60
    assert trial_ends(0.5) == 90 + 60
    assert trial_ends(2) == 90 + 60
