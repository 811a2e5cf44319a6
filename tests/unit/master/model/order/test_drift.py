"""Waiting jobs whose places change with what is learned: the index is as if it were made anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.job_steps import Cancelled
from dlq_master.model.lease import Terms
from dlq_master.model.order.waiting import WaitingByTeam, WaitingIndex, count_before
from dlq_master.policy.order.alike import FEW
from dlq_master.policy.registry.registry import build
from support.builders import a_waiting_job
from support.counted_calls import counted_calls
from support.validate import validate

STRIDE_S = 160_000.0  # after so much waiting an unknown job rises
UNKNOWN = {"know": "unknown"}
SHARED = {**UNKNOWN, "share": "fair"}
BY_TEAM = {**SHARED, "team_quota": "ann:4"}

jobs = st.builds(
    lambda number, gpus, user, estimate_s, attained, since, base: a_waiting_job(
        number,
        gpus,
        user=user,
        team=user,
        duration_estimate_s=estimate_s,
        attained_gpu_s=attained,
        queued_since_s=since * STRIDE_S,
        priority_base=base,
    ),
    st.integers(1, 40),
    st.sampled_from([1, 4]),
    st.sampled_from(["ann", "bob"]),
    st.sampled_from([None, None, None, 40.0, 7000.0]),
    st.sampled_from([0.0, 0.0, 0.0, 500.0, 2500.0, 9000.0]),
    st.integers(0, 3),
    st.sampled_from([0, 0, 1]),
)
learned = st.sampled_from([(1000.0, 10.0), (3000.0, 100.0), (20_000.0, 1.0), (1.0, 4000.0)])
acts = st.lists(
    st.one_of(
        jobs,
        st.integers(1, 40),
        learned,
        st.dictionaries(st.sampled_from(["ann", "bob"]), st.integers(-3, 3)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("settings", [UNKNOWN, SHARED, BY_TEAM])
@given(acts, st.booleans())
def test_what_is_learned_moves_waiting_jobs_as_if_they_came_anew(
    settings: dict[str, str], acts: list[object], looks: bool
) -> None:
    cluster = Cluster(build("dlq", settings).ordering, Terms())
    for act in acts:
        if isinstance(act, Job):
            if act.job_id not in cluster.jobs or cluster.jobs[act.job_id].waiting:
                known = cluster.jobs.get(act.job_id)
                cluster.put_job(act if known is None else act._replace(sequence=known.sequence))
        elif isinstance(act, int):
            if (job := cluster.jobs.get(JobId(act))) is not None and job.waiting:
                drive.step_job(cluster, job.job_id, Cancelled(), 1.0)
        elif isinstance(act, tuple):
            base, step = act
            for at in range(FEW * 2):
                cluster.history.add(base + step * at)
            cluster.relearn()
        elif isinstance(act, dict) and cluster.shares is not None:
            cluster.weigh(1, act)
        if looks:
            _hold(cluster)
    _hold(cluster)


def _hold(cluster: Cluster) -> None:
    validate(cluster)
    _lines_hold(cluster.waiting)
    if isinstance(cluster.waiting, WaitingByTeam):
        for index in cluster.waiting.teams.values():
            _lines_hold(index)


def _lines_hold(index: WaitingIndex) -> None:
    for lines in index.by_priority.values():
        firsts = [(*next(iter(line.items()))[::-1], shape) for shape, line in lines.items()]
        assert list(lines.fronts()) == sorted(firsts)
        for line in lines.values():
            places = list(line.items())
            assert list(line) == [job_id for job_id, _ in places]
            assert [line[job_id] for job_id in line] == [at for _, at in places]
            assert [count_before(line, at) for _, at in places] == [*range(len(line))]


@pytest.mark.parametrize("settings", [{}, UNKNOWN, SHARED])
def test_to_learn_costs_the_same_however_many_wait(settings: dict[str, str]) -> None:
    assert _calls(settings, 2_000) <= _calls(settings, 100)


def test_to_learn_looks_again_at_each_job_that_ran() -> None:
    assert _calls(UNKNOWN, 400, ran=40) < 2 * _calls(UNKNOWN, 100, ran=40)
    assert _calls(UNKNOWN, 400, ran=40) > _calls(UNKNOWN, 400, ran=20)


def _calls(settings: dict[str, str], waiting: int, ran: int = 0) -> int:
    """Of functions to learn once more, and to look at the first jobs of all lines."""
    cluster = Cluster(build("dlq", settings).ordering, Terms())
    for number in range(1, waiting + 1):
        attained_gpu_s = 10.0 * number if number <= ran else 0.0
        cluster.put_job(a_waiting_job(number, 1 + number % 4, attained_gpu_s=attained_gpu_s))
    for more in range(2):
        for at in range(FEW):
            cluster.history.add(1000.0 + at + more)
        if not more:
            cluster.relearn()
            _firsts(cluster)
    with counted_calls(of_c=True) as counted:
        cluster.relearn()
        _firsts(cluster)
    assert cluster.history.learned
    return counted.total()


def _firsts(cluster: Cluster) -> list[JobId]:
    return [front[1] for lines in cluster.waiting.by_priority.values() for front in lines.fronts()]


def test_a_job_that_comes_back_stands_where_it_belongs_now() -> None:
    """Its position was worked out and kept, as it waited before."""
    cluster = Cluster(build("dlq", UNKNOWN).ordering, Terms())
    for number, strides in ((1, 0), (2, 1)):
        cluster.put_job(a_waiting_job(number, queued_since_s=strides * STRIDE_S))
    for at in range(FEW):
        cluster.history.add(1000.0 + at)
    cluster.relearn()
    assert _firsts(cluster) == [1]
    _hold(cluster)
    cluster.put_job(cluster.jobs[JobId(1)]._replace(queued_since_s=2 * STRIDE_S))
    assert _firsts(cluster) == [2]
    _hold(cluster)


@pytest.mark.parametrize("settings", [{}, UNKNOWN, SHARED])
@given(st.lists(jobs, unique_by=lambda job: job.job_id), learned)
def test_a_cluster_that_knows_what_another_one_has_learned_has_its_order(
    settings: dict[str, str], waiting: list[Job], lesson: tuple[float, float]
) -> None:
    """A standby puts jobs first, and learns then."""
    ordering = build("dlq", settings).ordering
    leader, ahead, taught = (Cluster(ordering, Terms()) for _ in range(3))
    base, step = lesson
    for cluster in (leader, taught):
        for at in range(FEW * 2):
            cluster.history.add(base + step * at)
        cluster.know()
    for cluster in (leader, ahead):
        for job in waiting:
            cluster.put_job(job)
    ahead.relearn_from(taught)
    assert _order(ahead) == _order(leader)
    _hold(ahead)


def _order(cluster: Cluster) -> list[JobId]:
    lines = cluster.waiting.by_priority.values()
    return [job_id for each in lines for line in each.values() for job_id in line]
