"""`dlq update`: who may change what of which job, all or nothing, told before and after."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dlq_common.errors import (
    Conflict,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    PermissionDenied,
)
from dlq_master.control.config import QueueConfig
from dlq_master.control.stimuli import (
    AskedArray,
    AskedDependency,
    AskedTerm,
    Caller,
    FieldChange,
    UpdatedJob,
    UpdateJob,
)
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.arrays import tasks
from dlq_master.model.jobs.eligible import Block, Relation
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from support.master_harness import ALICE, ROOT, Master, config_of
from support.sim_agent import SimAgent

BOB = Caller("bob", "user")


@pytest.fixture
def master(masters: Callable[..., Master]) -> Master:
    """Two queues, the urgent one first."""
    queues = (QueueConfig("default"), QueueConfig("urgent", 10))
    return masters(replace(config_of(), queues=queues))


def update(master: Master, job_id: JobId, caller: Caller = ALICE, **more: Any) -> UpdatedJob:
    answer: object = master.edit(UpdateJob, job_id, caller=caller, **more)
    assert isinstance(answer, UpdatedJob)
    return answer


def running(master: Master, agent: SimAgent, **more: Any) -> Job:
    job = master.submit(2, **more)
    agent.obey()
    agent.start(AttemptKey(job.job_id, 1))
    agent.report()
    return master.job(job.job_id)


def after(relation: Relation, *job_ids: int) -> AskedDependency:
    return AskedDependency(tuple(AskedTerm(relation, JobId(each)) for each in job_ids))


def test_every_field_is_told_before_and_after(master: Master) -> None:
    first = master.submit()
    job = master.submit(time_limit_s=3600.0)
    begin_s = master.clock.now_s() + 60.0
    updated = update(
        master,
        job.job_id,
        name="other",
        queue="urgent",
        nice=5,
        time_limit_s=7200.0,
        begin_time_s=begin_s,
        depends=after(Relation.AFTERANY, first.job_id),
    )
    assert updated.changes == (
        FieldChange("name", "job", "other"),
        FieldChange("queue", "default", "urgent"),
        FieldChange("nice", "0", "5"),
        FieldChange("time_limit", "01:00:00", "02:00:00"),
        FieldChange("begin", "none", "2027-01-15T08:01:00.000Z"),
        FieldChange("dependency", "none", "afterany:1"),
    )
    assert (updated.job.queue, updated.job.nice, updated.job.time_limit_s) == ("urgent", 5, 7200.0)
    (event,) = [e for e in master.events(job.job_id) if e.kind == "job_updated"]
    assert event.actor == "user:alice"
    assert "queue: default -> urgent" in str(event.data["changes"])
    before = dict(master.state.cluster.jobs)
    master.restart()
    assert dict(master.state.cluster.jobs) == before


def test_what_is_so_already_is_no_change(master: Master) -> None:
    job = master.submit(time_limit_s=60.0)
    updated = update(master, job.job_id, name="job", time_limit_s=60.0, nice=0)
    assert updated.changes == ()
    assert updated.job.version == master.job(job.job_id).version
    assert "job_updated" not in master.words(job.job_id)


def test_a_repeat_is_answered_alike_and_changes_nothing(master: Master) -> None:
    job = master.submit()
    first = update(master, job.job_id, name="b", request_id="u")
    update(master, job.job_id, name="c")
    again = update(master, job.job_id, name="b", request_id="u")
    assert again.changes == first.changes
    assert master.job(job.job_id).name == "c"


def test_a_change_of_another_version_is_refused(master: Master) -> None:
    job = master.submit()
    update(master, job.job_id, name="b")
    with pytest.raises(Conflict):
        update(master, job.job_id, name="c", expected_version=job.version)
    assert master.job(job.job_id).name == "b"


def test_one_wish_that_is_refused_undoes_all(master: Master) -> None:
    job = master.submit()
    with pytest.raises(InvalidRequest, match="no queue 'nosuch'"):
        update(master, job.job_id, name="b", queue="nosuch")
    assert master.job(job.job_id).name == "job"


def test_other_users_and_ended_jobs_are_left_alone(master: Master) -> None:
    job = master.submit()
    with pytest.raises(NotFound):
        update(master, job.job_id, caller=BOB, name="b")
    master.cancel(job.job_id)
    with pytest.raises(IllegalTransition, match="has ended"):
        update(master, job.job_id, name="b")


def test_a_running_job_can_only_be_given_less_time_by_its_user(
    master: Master, agent: SimAgent
) -> None:
    job = running(master, agent, time_limit_s=3600.0)
    assert update(master, job.job_id, time_limit_s=1800.0).job.time_limit_s == 1800.0
    for longer_s in (3600.0, None):
        with pytest.raises(PermissionDenied, match="only operators lengthen"):
            update(master, job.job_id, time_limit_s=longer_s)
    assert update(master, job.job_id, caller=ROOT, time_limit_s=None).job.time_limit_s is None
    assert update(master, job.job_id, time_limit_s=600.0).job.time_limit_s == 600.0
    master.tick(600.0)
    assert master.attempt(job.job_id).stop_cause == "time_limit"


@pytest.mark.parametrize(
    "wish",
    [{"queue": "urgent"}, {"begin_time_s": 5e9}, {"depends": AskedDependency(())}],
    ids=["queue", "begin", "dependency"],
)
def test_some_things_cannot_change_under_a_job_that_runs(
    master: Master, agent: SimAgent, wish: dict[str, Any]
) -> None:
    job = running(master, agent)
    with pytest.raises(IllegalTransition, match="cannot be changed any more"):
        update(master, job.job_id, **wish)
    assert update(master, job.job_id, name="b", nice=3).job.nice == 3


def test_a_nice_puts_a_job_behind_or_before_all_others_of_its_queue(
    master: Master, agent: SimAgent
) -> None:
    blocker = running(master, agent)
    running(master, agent)
    jobs = [master.submit(4) for _ in range(3)]
    update(master, jobs[0].job_id, nice=10)
    update(master, jobs[2].job_id, caller=ROOT, nice=-1)
    urgent = master.submit(4, nice=100)
    update(master, urgent.job_id, queue="urgent")
    order = sorted(
        (*jobs, urgent), key=lambda job: (master.job(job.job_id).priority_base, job.sequence)
    )
    assert [job.job_id for job in order] == [
        urgent.job_id,
        jobs[2].job_id,
        jobs[1].job_id,
        jobs[0].job_id,
    ]
    with pytest.raises(PermissionDenied):
        update(master, jobs[1].job_id, nice=-1)
    with pytest.raises(PermissionDenied):
        master.submit(nice=-1)
    with pytest.raises(InvalidRequest):
        update(master, jobs[1].job_id, caller=ROOT, nice=101)
    assert blocker.live_attempt


def test_a_new_dependency_is_waited_for_and_an_old_one_forgotten(master: Master) -> None:
    one, two = master.submit(), master.submit()
    job = master.submit(depends=after(Relation.AFTERANY, one.job_id))
    update(master, job.job_id, depends=after(Relation.AFTERANY, two.job_id))
    master.cancel(one.job_id)
    assert master.job(job.job_id).blocked is Block.DEPENDENCY
    master.cancel(two.job_id)
    assert master.job(job.job_id).blocked is None
    free = master.submit()
    later = master.submit()
    assert (
        update(master, later.job_id, depends=after(Relation.AFTEROK, free.job_id)).job.blocked
        is Block.DEPENDENCY
    )
    assert update(master, later.job_id, depends=None).job.blocked is None
    assert not master.state.jobs.gates.dependents


def test_no_circle_can_arise(master: Master) -> None:
    one = master.submit()
    two = master.submit(depends=after(Relation.AFTERANY, one.job_id))
    for target in (one.job_id, two.job_id):
        with pytest.raises(InvalidRequest, match="cannot depend on it"):
            update(master, one.job_id, depends=after(Relation.AFTERANY, target))


def test_the_masters_hold_ends_with_the_dependency_that_caused_it(master: Master) -> None:
    first = master.submit()
    job = master.submit(depends=after(Relation.AFTEROK, first.job_id))
    master.cancel(first.job_id)
    assert master.job(job.job_id).hold is HoldKind.DEPENDENCY
    updated = update(master, job.job_id, depends=None).job
    assert (updated.hold, updated.blocked) == (None, None)
    assert updated.state is JobState.QUEUED


def test_a_begin_is_moved_and_taken_away(master: Master, agent: SimAgent) -> None:
    job = master.submit(2, begin_time_s=master.clock.now_s() + 1000.0)
    update(master, job.job_id, begin_time_s=master.clock.now_s() + 10.0)
    master.clock.advance(10.0)
    agent.heartbeat()
    master.turn()
    assert master.attempt(job.job_id).state == "assigned"
    other = master.submit(2, begin_time_s=master.clock.now_s() + 1000.0)
    assert update(master, other.job_id, begin_time_s=None).job.blocked is None
    assert master.attempt(other.job_id).state == "assigned"


def test_a_task_at_the_door_may_be_given_a_begin_or_a_dependency(master: Master) -> None:
    first = master.submit(1, array=AskedArray((0, 1, 2), 1))
    last, middle = JobId(first.job_id + 2), JobId(first.job_id + 1)
    update(master, last, begin_time_s=master.clock.now_s() + 50.0)
    update(master, middle, depends=None, begin_time_s=None)
    assert master.job(last).blocked is Block.BEGIN_TIME
    master.cancel(first.job_id)
    master.cancel(middle)
    assert master.job(last).blocked is Block.BEGIN_TIME
    master.tick(50.0)
    assert master.job(last).blocked is None


def test_a_singleton_that_is_renamed_waits_for_others(master: Master) -> None:
    singleton = AskedDependency((AskedTerm(Relation.SINGLETON, JobId(0)),))
    first = master.submit()
    second = master.submit(depends=singleton)
    assert second.blocked is Block.DEPENDENCY
    update(master, first.job_id, name="elsewhere")
    assert master.job(second.job_id).blocked is None


@pytest.mark.parametrize("limits", [(0, 2), (4, 1), (1, 3), (2, 0)])
def test_the_limit_of_an_array_is_that_of_all_its_tasks(
    master: Master, agent: SimAgent, limits: tuple[int, int]
) -> None:
    before, limit = limits
    first = master.submit(1, array=AskedArray(tuple(range(6)), before))
    assert first.array is not None
    agent.obey()
    updated = update(master, JobId(first.job_id + 3), concurrent=limit)
    assert updated.changes == (
        FieldChange("concurrent", str(before or "all"), str(limit or "all")),
    )
    jobs = list(tasks(master.loop.published.job, first.array))
    assert {job.array.concurrent for job in jobs if job.array} == {limit}
    live = sum(job.live_attempt is not None for job in jobs)
    inside = sum(job.blocked is None for job in jobs)
    assert inside == (6 if not limit else max(limit, live))
    with pytest.raises(InvalidRequest, match="not a task"):
        update(master, master.submit().job_id, concurrent=1)
