"""The worlds of a forecast: how they differ, who comes in them, and what is left when time runs
out.
"""

from __future__ import annotations

from itertools import chain, repeat
from math import inf
from statistics import mean

import pytest

from dlq_master.model.attempts.attempt_steps import Running
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.eligible import Block
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import strict
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.nodes.type_speeds import TypeSpeeds
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.planner.forecasts import PastRuns
from dlq_master.policy.pipeline import plan
from dlq_master.policy.policy import Policy
from dlq_master.policy.registry.registry import build
from dlq_simulator.twin.arrivals import matter, newcomers
from dlq_simulator.twin.forecast import WORLDS, Worlds, foresee, foresee_one, quantile_of
from dlq_simulator.twin.runtimes import RunTimes
from dlq_simulator.twin.world import TwinWorld, lose
from support.builders import a_job, a_node, a_waiting_job

NOW_S = 10_000.0
RUN_S = 1_000.0
COARSE = 0.03  # as the worlds are
KNOWN = RunTimes([PastRuns("ada", "other", RUN_S)] * 10)


def full(jobs: int, policy: str = "fifo", gpus: int = 8) -> Worlds:
    """A node of 8 GPUs, and so many jobs that want `gpus` of it."""

    def thaw() -> tuple[Cluster, Policy]:
        chosen = build(policy)
        cluster = Cluster(chosen.ordering, Terms())
        cluster.put_node(a_node())
        for number in range(1, jobs + 1):
            cluster.put_job(a_waiting_job(number, gpus, submit_time_s=NOW_S - 100.0))
        return cluster, chosen

    return Worlds(thaw, NOW_S, KNOWN)


def test_one_job_goes_through_its_whole_distribution() -> None:
    for number in range(1, 50):
        quantiles = [quantile_of(world, JobId(number)) for world in range(WORLDS)]
        assert quantiles == [quantile_of(world, JobId(number)) for world in range(WORLDS)]
        assert all(0.0 < quantile < 1.0 for quantile in quantiles)
        assert min(quantiles) < 0.3
        assert max(quantiles) > 0.7


def test_all_jobs_of_a_world_have_something_in_common() -> None:
    means = [
        mean(quantile_of(world, JobId(number)) for number in range(1, 2_000))
        for world in range(WORLDS)
    ]
    assert means[0] == pytest.approx(0.5, abs=0.02)  # the one that there always is
    assert max(means) - min(means) > 0.2
    assert mean(means) == pytest.approx(0.5, abs=0.01)


def test_jobs_that_want_everything_start_one_after_another() -> None:
    forecast = foresee(full(3), lambda: 0.0)
    likely = [forecast.starts[JobId(number)].likely_s - NOW_S for number in (1, 2, 3)]
    assert likely == [0.0, pytest.approx(RUN_S, rel=COARSE), pytest.approx(2 * RUN_S, rel=COARSE)]
    assert (forecast.worlds, forecast.complete_to_s) == (WORLDS, inf)


def test_what_time_does_not_allow_is_later_than_was_looked_ahead() -> None:
    # Some turns of the first world, and then it is enough.
    spent = chain(repeat(0.0, 2), repeat(1.0))
    forecast = foresee(full(50), lambda: next(spent))
    assert forecast.worlds == 1
    assert NOW_S < forecast.complete_to_s < inf
    assert len(forecast.starts) < 10
    assert max(range_.likely_s for range_ in forecast.starts.values()) <= forecast.complete_to_s


def test_a_job_that_begins_later_is_not_looked_for_before() -> None:
    later = a_job(99, 8, begin_time_s=NOW_S + 5_000.0, blocked=Block.BEGIN_TIME)
    found = foresee_one(full(2), lambda: 0.0, later)
    assert found.start is not None
    assert found.start.likely_s - NOW_S == pytest.approx(5_000.0, rel=COARSE)
    assert found.start.likely_s >= NOW_S + 5_000.0


def test_a_job_that_waits_for_others_is_not_foreseen() -> None:
    found = foresee_one(full(2), lambda: 0.0, a_job(99, 8, blocked=Block.DEPENDENCY))
    assert (found.start, found.end) == (None, None)


def recent(count: int) -> list[Job]:
    """One every ten seconds, with 1 to 4 GPUs."""
    return [
        a_job(number, 1 + number % 4, submit_time_s=NOW_S - 10.0 * (count - number + 1))
        for number in range(1, count + 1)
    ]


def test_newcomers_are_like_those_who_came_last_and_as_many() -> None:
    come = newcomers(recent(400), NOW_S, 3)
    assert come == newcomers(recent(400), NOW_S, 3)
    assert come != newcomers(recent(400), NOW_S, 4)
    times = [job.submit_time_s for job in come]
    assert times == sorted(times)
    assert times[0] > NOW_S
    assert (times[-1] - NOW_S) / len(times) == pytest.approx(10.0, rel=0.15)
    assert {job.request.gpus for job in come} == {1, 2, 3, 4}
    assert len({job.job_id for job in come}) == len(come)
    assert not {job.job_id for job in come} & {job.job_id for job in recent(400)}


def test_few_tell_no_rate() -> None:
    assert newcomers(recent(5), NOW_S, 1) == []
    assert newcomers([], NOW_S, 1) == []


def test_newcomers_matter_where_they_may_go_first() -> None:
    assert not matter(build("fifo"))
    assert matter(build("best-effort"))
    assert matter(build("tiresias-las"))


def test_newcomers_delay_a_wide_job_that_others_may_pass() -> None:
    def start_s(others: list[Job]) -> float:
        worlds = full(2, "best-effort", gpus=3)._replace(recent=others)
        wide = a_job(99, 8)
        found = foresee_one(worlds, lambda: 0.0, wide)
        assert found.start is not None
        return found.start.likely_s

    assert start_s([]) == pytest.approx(NOW_S + RUN_S, abs=COARSE * RUN_S)
    assert start_s(recent(400)) > NOW_S + 1.5 * RUN_S


@pytest.mark.parametrize(("gpu_type", "times"), [(None, 4.0), ("t4-16gb", 1.0)])
def test_jobs_run_at_the_declared_speed_of_their_gpus(gpu_type: str | None, times: float) -> None:
    """The run time of a job that names one type holds there."""
    policy = build("srtf")
    cluster = Cluster(policy.ordering, Terms(), TypeSpeeds({"t4": 0.25}))
    cluster.put_node(a_node("slow", 8, "t4-16gb"))
    for number in (1, 2):
        request = Request(gpus=8, gpu_type=gpu_type)
        cluster.put_job(a_waiting_job(number, request=request, duration_estimate_s=RUN_S))
    twin = TwinWorld(cluster, policy, NOW_S, lambda _job, _done_s: RUN_S)
    twin.run(inf)
    assert twin.starts == {JobId(1): NOW_S, JobId(2): NOW_S + times * RUN_S}


def test_a_forecast_runs_a_job_at_the_measured_pace_of_its_program() -> None:
    policy = build("dlq")
    cluster = Cluster(policy.ordering, Terms(), TypeSpeeds({"t4": 0.25}))
    cluster.put_node(a_node("slow", 8, "t4-16gb"))
    shut = a_node("fast", 16, "h100-80gb", flags=frozenset({NodeFlag.DRAINING}))
    cluster.put_node(shut)
    jobs = [a_waiting_job(n, 8, family="f", duration_estimate_s=RUN_S) for n in (1, 2)]
    for number in (11, 12, 13):
        for kind, step_s in (("h100-80gb", 1.0), ("t4-16gb", 2.0)):
            told = jobs[0]._replace(job_id=JobId(number))
            cluster.profiling.learn_pace(told, kind, step_s)
    for job in jobs:
        cluster.put_job(job)
    twin = TwinWorld(cluster, policy, NOW_S, lambda _job, _done_s: RUN_S)
    twin.run(inf)
    assert twin.starts == {JobId(1): NOW_S, JobId(2): NOW_S + 2 * RUN_S}


def busy() -> Cluster:
    """Two nodes of 8 GPUs. Job 1 runs on the first, and has a deadline."""
    cluster = Cluster(build("fifo").ordering, Terms())
    for name in ("n1", "n2"):
        cluster.put_node(a_node(name))
    steps = strict(3 * RUN_S)
    cluster.put_job(a_waiting_job(1, 8, submit_time_s=NOW_S - 100.0, steps=steps))
    drive.apply(cluster, plan(View(cluster, NOW_S), build("fifo")), NOW_S, 1)
    (key,) = cluster.attempts
    drive.step_attempt(cluster, key, Running(), NOW_S)
    return cluster


def busy_worlds(*lost: str) -> Worlds:
    def thaw() -> tuple[Cluster, Policy]:
        cluster = busy()
        lose(cluster, [NodeId(name) for name in lost], NOW_S)
        return cluster, build("fifo")

    return Worlds(thaw, NOW_S, KNOWN)


def test_a_node_that_dies_takes_its_work_along_and_its_job_starts_again() -> None:
    now, then = foresee(busy_worlds(), lambda: 0.0), foresee(busy_worlds("n1"), lambda: 0.0)
    assert JobId(1) not in now.starts
    assert JobId(1) in then.starts
    assert then.ends[JobId(1)].likely_s > now.ends[JobId(1)].likely_s
    assert foresee(busy_worlds("n1", "n2"), lambda: 0.0).ends[JobId(1)].likely_s == inf


def test_a_job_that_comes_waits_behind_the_others_and_has_an_end_if_it_is_due() -> None:
    come = a_job(99, 16, steps=strict(5 * RUN_S), sequence=99)
    forecast = foresee(busy_worlds(), lambda: 0.0, [come])
    assert forecast.starts[JobId(99)].likely_s - NOW_S == pytest.approx(RUN_S, rel=2 * COARSE)
    assert {*forecast.ends} == {JobId(1), JobId(99)}


@pytest.mark.parametrize(("hours", "promised"), [(12.0, 0), (0.5, None)])
def test_a_deadline_that_is_asked_for_is_judged_as_the_policy_would(
    hours: float, promised: int | None
) -> None:
    def thaw() -> tuple[Cluster, Policy]:
        policy = build("chronus")
        cluster = Cluster(policy.ordering, Terms())
        for name in ("n1", "n2"):
            cluster.put_node(a_node(name))
        return cluster, policy

    worlds = Worlds(thaw, NOW_S, KNOWN)
    asked = a_job(99, 8, duration_estimate_s=3_600.0, steps=strict(hours * 3_600.0))
    found = foresee_one(worlds, lambda: 0.0, asked)
    assert (found.judged, found.promised) == (True, promised)
    assert not foresee_one(worlds, lambda: 0.0, a_job(99, 8)).judged
