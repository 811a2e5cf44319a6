"""`after` with a delay, and `aftercorr`: a task of an array after the same one of another."""

from __future__ import annotations

from dlq_master.control.stimuli import (
    AskedArray,
    AskedDependency,
    AskedTerm,
    CancelJob,
    UpdateJob,
)
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.eligible import Relation
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from dlq_master.model.jobs.naming import shown_dependency
from support.master_harness import Master
from support.sim_agent import SimAgent


def after(relation: Relation, job_id: int, delay_s: float = 0.0) -> AskedDependency:
    return AskedDependency((AskedTerm(relation, JobId(job_id), delay_s=delay_s),))


def tasks(*indexes: int) -> AskedArray:
    return AskedArray(indexes, 0)


def run(agent: SimAgent, job_id: int) -> AttemptKey:
    key = AttemptKey(JobId(job_id), 1)
    agent.obey()
    agent.start(key)
    agent.report()
    return key


def array_id_of(job: Job) -> int:
    assert job.array is not None
    return job.array.array_id


def eligible(master: Master, job_id: int) -> bool:
    now = master.job(JobId(job_id))
    return now.blocked is None and now.state in (JobState.PENDING, JobState.QUEUED)


def shown(master: Master, job: Job) -> str:
    depends = master.job(job.job_id).depends
    assert depends is not None
    return shown_dependency(depends, master.state.cluster.jobs.get)


def test_a_delay_counts_from_the_start_also_over_a_restart(master: Master, agent: SimAgent) -> None:
    first = master.submit(1)
    then = master.submit(1, depends=after(Relation.AFTER, first.job_id, 300.0))
    assert shown(master, then) == f"after:{first.job_id}+5"
    run(agent, first.job_id)
    assert not eligible(master, then.job_id)
    master.clock.advance(299.0)
    master.turn()
    assert not eligible(master, then.job_id)
    master.restart()
    master.tick()
    assert not eligible(master, then.job_id)
    master.clock.advance(1.0)
    master.turn()
    assert eligible(master, then.job_id)


def test_a_delay_counts_from_the_cancel_of_a_job_that_never_started(master: Master) -> None:
    first = master.submit(2)
    then = master.submit(2, depends=after(Relation.AFTER, first.job_id, 60.0))
    master.edit(CancelJob, first.job_id)
    assert not eligible(master, then.job_id)
    late = master.submit(2, depends=after(Relation.AFTER, first.job_id, 60.0))
    assert not eligible(master, late.job_id)
    master.clock.advance(60.0)
    master.turn()
    assert eligible(master, then.job_id)
    assert eligible(master, late.job_id)
    assert eligible(
        master, master.submit(2, depends=after(Relation.AFTER, first.job_id, 60.0)).job_id
    )


def test_a_begin_is_waited_for_behind_a_delay(master: Master, agent: SimAgent) -> None:
    first = master.submit(1)
    begin_s = master.clock.now_s() + 100.0
    then = master.submit(1, depends=after(Relation.AFTER, first.job_id, 60.0), begin_time_s=begin_s)
    run(agent, first.job_id)
    master.clock.advance(60.0)
    master.turn()
    assert not eligible(master, then.job_id)
    master.clock.advance(40.0)
    master.turn()
    assert eligible(master, then.job_id)


def test_each_task_waits_for_the_same_one_of_the_other_array(
    master: Master, agent: SimAgent
) -> None:
    first = master.submit(1, array=tasks(0, 1, 2))
    then = master.submit(
        1, array=tasks(1, 2, 5), depends=after(Relation.AFTERCORR, array_id_of(first))
    )
    one, two, five = then.job_id, then.job_id + 1, then.job_id + 2
    assert [eligible(master, number) for number in (one, two, five)] == [False, False, True]
    assert shown(master, then) == f"aftercorr:{array_id_of(first)}_1"
    agent.exit(run(agent, first.job_id + 1), 0)
    agent.report()
    assert [eligible(master, number) for number in (one, two)] == [True, False]
    agent.exit(run(agent, first.job_id + 2), 1)
    agent.report()
    master.restart()
    master.tick()
    assert master.job(JobId(two)).hold is HoldKind.DEPENDENCY
    assert master.job(JobId(one)).hold is None


def test_without_a_pair_of_arrays_it_means_afterok(master: Master, agent: SimAgent) -> None:
    array, single = master.submit(1, array=tasks(0, 1)), master.submit(1)
    of_array = master.submit(1, depends=after(Relation.AFTERCORR, array_id_of(array)))
    of_single = master.submit(
        1, array=tasks(3, 4), depends=after(Relation.AFTERCORR, single.job_id)
    )
    assert shown(master, of_array) == f"aftercorr:{array_id_of(array)}_*"
    agent.exit(run(agent, single.job_id), 0)
    agent.report()
    assert eligible(master, of_single.job_id)
    assert eligible(master, of_single.job_id + 1)
    agent.exit(run(agent, array.job_id), 0)
    agent.report()
    assert not eligible(master, of_array.job_id)
    agent.exit(run(agent, array.job_id + 1), 0)
    agent.report()
    assert eligible(master, of_array.job_id)


def test_a_task_can_be_told_so_later(master: Master) -> None:
    first = master.submit(1, array=tasks(0, 1), hold=True)
    then = master.submit(1, array=tasks(0, 1), hold=True)
    wish = after(Relation.AFTERCORR, array_id_of(first))
    for number in (then.job_id, then.job_id + 1):
        master.edit(UpdateJob, JobId(number), depends=wish)
    assert shown(master, then) == f"aftercorr:{array_id_of(first)}_0"
