"""Jobs that wait for others, or for a time, before they may wait for GPUs."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import NotFound, Unsatisfiable
from dlq_master.control.config import RetentionConfig
from dlq_master.control.stimuli import (
    AskedArray,
    AskedDependency,
    AskedTerm,
    Caller,
    CancelJob,
    HoldJob,
    ReleaseJob,
    ResumeJob,
    UpdateJob,
)
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.eligible import Block, Relation
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from dlq_master.model.why import ReasonCode
from support.counted_calls import counted_calls
from support.master_harness import ALICE, ROOT, Master, config_of
from support.sim_agent import SimAgent

BOB = Caller("bob", "user")


def after(
    relation: Relation, *job_ids: int, any_: bool = False, cancel: bool = False
) -> AskedDependency:
    terms = tuple(AskedTerm(relation, JobId(job_id)) for job_id in job_ids)
    return AskedDependency(terms, any_, cancel)


SINGLETON = AskedDependency((AskedTerm(Relation.SINGLETON, JobId(0)),))


def run(agent: SimAgent, job_id: JobId) -> AttemptKey:
    key = AttemptKey(job_id, 1)
    agent.obey()
    agent.start(key)
    agent.report()
    return key


def finish(agent: SimAgent, job_id: JobId, code: int = 0) -> None:
    agent.exit(run(agent, job_id), code)
    agent.report()


def eligible(master: Master, job: Job) -> bool:
    now = master.job(job.job_id)
    return now.blocked is None and now.state in (JobState.PENDING, JobState.QUEUED)


@pytest.mark.parametrize(
    ("relation", "code", "comes"),
    [
        (Relation.AFTEROK, 0, True),
        (Relation.AFTEROK, 1, False),
        (Relation.AFTERNOTOK, 0, False),
        (Relation.AFTERNOTOK, 1, True),
        (Relation.AFTERANY, 0, True),
        (Relation.AFTERANY, 1, True),
    ],
)
def test_a_job_waits_for_the_end_of_another_and_for_how_it_went(
    master: Master, agent: SimAgent, relation: Relation, code: int, comes: bool
) -> None:
    first = master.submit(4)
    then = master.submit(4, depends=after(relation, first.job_id))
    assert then.blocked is Block.DEPENDENCY
    assert then.queued_since_s is None
    run(agent, first.job_id)
    assert not eligible(master, then)
    agent.exit(AttemptKey(first.job_id, 1), code)
    agent.report()
    assert eligible(master, then) is comes
    if comes:
        assert master.attempt(then.job_id).state == "assigned"
    else:
        held = master.job(then.job_id)
        assert (held.state, held.hold) == (JobState.HELD, HoldKind.DEPENDENCY)
        assert held.hold_reason == f"{relation.value}:{first.job_id}"
        assert master.why(then.job_id).reasons[0].code is ReasonCode.DEPENDENCY


def test_after_means_that_the_other_has_started(master: Master, agent: SimAgent) -> None:
    first = master.submit(2)
    then = master.submit(2, depends=after(Relation.AFTER, first.job_id))
    agent.obey()
    agent.report()
    assert not eligible(master, then)
    run(agent, first.job_id)
    assert eligible(master, then)


def test_after_is_met_by_a_job_that_was_cancelled_before_it_started(master: Master) -> None:
    first = master.submit(2)
    then = master.submit(2, depends=after(Relation.AFTER, first.job_id))
    master.edit(CancelJob, first.job_id)
    assert eligible(master, then)


def test_a_cancelled_job_has_ended_when_its_processes_have(master: Master, agent: SimAgent) -> None:
    first = master.submit(2)
    then = master.submit(2, depends=after(Relation.AFTERANY, first.job_id))
    key = run(agent, first.job_id)
    master.edit(CancelJob, first.job_id)
    assert not eligible(master, then)
    agent.obey()
    agent.exit(key, 0)
    agent.report()
    assert eligible(master, then)


def test_all_terms_are_needed_or_any_of_them(master: Master) -> None:
    one, two = master.submit(), master.submit()
    every = master.submit(depends=after(Relation.AFTERANY, one.job_id, two.job_id))
    some = master.submit(depends=after(Relation.AFTERANY, one.job_id, two.job_id, any_=True))
    master.edit(CancelJob, one.job_id)
    assert not eligible(master, every)
    assert eligible(master, some)
    reason = master.why(every.job_id).reasons[0]
    assert (reason.blocking_jobs, reason.detail) == ((two.job_id,), f"afterany:{two.job_id}")
    master.edit(CancelJob, two.job_id)
    assert eligible(master, every)


def test_any_of_them_is_given_up_only_when_all_have_failed(master: Master) -> None:
    one, two = master.submit(), master.submit()
    some = master.submit(depends=after(Relation.AFTEROK, one.job_id, two.job_id, any_=True))
    master.edit(CancelJob, one.job_id)
    assert master.job(some.job_id).hold is None
    master.edit(CancelJob, two.job_id)
    assert master.job(some.job_id).hold is HoldKind.DEPENDENCY


def test_a_job_whose_dependency_can_never_come_true_may_be_cancelled_instead(
    master: Master,
) -> None:
    first = master.submit()
    then = master.submit(depends=after(Relation.AFTEROK, first.job_id, cancel=True))
    last = master.submit(depends=after(Relation.AFTERANY, then.job_id))
    master.edit(CancelJob, first.job_id)
    assert master.job(then.job_id).state is JobState.CANCELLED
    (event,) = [e for e in master.events(then.job_id) if e.kind == "job_cancelled"]
    assert (event.actor, event.cause) == (
        "master",
        f"its dependency can never come true: afterok:{first.job_id}",
    )
    assert eligible(master, last)  # what follows from that follows in the same turn


def test_a_hold_of_ones_own_stands_beside_the_dependency(master: Master) -> None:
    first = master.submit()
    then = master.submit(depends=after(Relation.AFTERANY, first.job_id))
    master.edit(HoldJob, then.job_id)
    master.edit(CancelJob, first.job_id)
    assert master.job(then.job_id).state is JobState.HELD
    assert master.job(then.job_id).blocked is None
    master.edit(ReleaseJob, then.job_id)
    assert eligible(master, then)


def test_releasing_a_job_before_its_dependency_is_met_starts_nothing(
    master: Master, agent: SimAgent
) -> None:
    first = master.submit(1)
    then = master.submit(1, depends=after(Relation.AFTERANY, first.job_id), hold=True)
    master.edit(ReleaseJob, then.job_id)
    assert master.job(then.job_id).state is JobState.QUEUED
    assert not eligible(master, then)
    assert master.job(then.job_id).live_attempt is None
    assert master.state.cluster.waiting.count == 0
    agent.cut()
    master.restart()
    assert not eligible(master, then)


def test_the_hold_of_the_master_comes_back_also_after_a_restart(master: Master) -> None:
    first = master.submit()
    then = master.submit(depends=after(Relation.AFTEROK, first.job_id))
    master.edit(CancelJob, first.job_id)
    assert master.job(then.job_id).hold is HoldKind.DEPENDENCY
    master.restart()
    master.tick()
    master.edit(ReleaseJob, then.job_id)
    assert master.job(then.job_id).hold is HoldKind.DEPENDENCY


def test_the_hold_of_the_master_comes_back_while_its_cause_stands(master: Master) -> None:
    first = master.submit()
    then = master.submit(depends=after(Relation.AFTEROK, first.job_id))
    master.edit(CancelJob, first.job_id)
    master.edit(ReleaseJob, then.job_id)
    assert master.job(then.job_id).hold is HoldKind.DEPENDENCY
    with pytest.raises(Exception, match="held, not paused"):
        master.edit(ResumeJob, then.job_id)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_restart_forgets_no_dependency(master: Master, agent: SimAgent, when: str) -> None:
    first = master.submit(4)
    then = master.submit(4, depends=after(Relation.AFTEROK, first.job_id))
    key = run(agent, first.job_id)
    if when == "before":
        agent.cut()
        master.restart()
        agent.hello()
    agent.exit(key, 0)
    agent.report()
    if when == "after":
        agent.cut()
        master.restart()
        agent.hello()
    master.tick()
    assert eligible(master, then)
    assert master.attempt(then.job_id).state == "assigned"


def test_jobs_that_ended_long_ago_can_still_be_depended_on(
    masters: Callable[..., Master],
) -> None:
    config = replace(config_of(), retention=RetentionConfig(Seconds(10.0), 10))
    master = masters(config)
    good = master.submit()
    agent = SimAgent(master, "gpu01")  # type: ignore[arg-type]
    agent.hello()
    finish(agent, good.job_id)
    master.tick(60.0)
    assert good.job_id not in master.state.cluster.jobs
    assert eligible(master, master.submit(depends=after(Relation.AFTEROK, good.job_id)))
    never = master.submit(depends=after(Relation.AFTERNOTOK, good.job_id))
    assert master.job(never.job_id).hold is HoldKind.DEPENDENCY


def test_nobody_depends_on_what_is_not_there_or_not_theirs(master: Master) -> None:
    mine = master.submit()
    for asked in (after(Relation.AFTEROK, 99), after(Relation.AFTEROK, mine.job_id + 1)):
        with pytest.raises(NotFound, match="there is no job"):
            master.submit(depends=asked)
    with pytest.raises(NotFound, match=f"there is no job {mine.job_id} to depend on"):
        master.submit(depends=after(Relation.AFTEROK, mine.job_id), caller=BOB)
    assert master.submit(depends=after(Relation.AFTEROK, mine.job_id), caller=ROOT).depends


def test_an_array_is_waited_for_as_a_whole_and_its_tasks_one_by_one(
    master: Master, agent: SimAgent
) -> None:
    first = master.submit(1, array=AskedArray((0, 1, 2), 0))
    assert first.array is not None
    array_id = first.array.array_id
    whole = master.submit(1, depends=after(Relation.AFTEROK, array_id))
    one = AskedDependency((AskedTerm(Relation.AFTEROK, array_id, 1),))
    single = master.submit(1, depends=one)
    for number in (1, 2):
        finish(agent, JobId(array_id + number))
    assert not eligible(master, whole)
    assert eligible(master, single)
    finish(agent, JobId(array_id + 3))
    assert eligible(master, whole)
    with pytest.raises(NotFound, match=f"no job {array_id}_9"):
        master.submit(depends=AskedDependency((AskedTerm(Relation.AFTER, array_id, 9),)))


@pytest.mark.parametrize("restart", [False, True])
def test_one_failed_task_decides_for_its_array(
    master: Master, agent: SimAgent, restart: bool
) -> None:
    first = master.submit(1, array=AskedArray((0, 1), 0))
    assert first.array is not None
    array_id = first.array.array_id
    well = master.submit(1, depends=after(Relation.AFTEROK, array_id))
    badly = master.submit(1, depends=after(Relation.AFTERNOTOK, array_id))
    finish(agent, JobId(array_id + 1), code=1)
    assert master.job(well.job_id).hold is HoldKind.DEPENDENCY
    assert not eligible(master, badly)
    if restart:
        agent.cut()
        master.restart()
        agent.hello()
    finish(agent, JobId(array_id + 2))
    assert eligible(master, badly)


def test_an_array_may_depend_and_its_tasks_come_within_its_limit(master: Master) -> None:
    first = master.submit()
    task = master.submit(
        array=AskedArray((0, 1, 2), 1), depends=after(Relation.AFTERANY, first.job_id)
    )
    tasks = [JobId(task.job_id + number) for number in range(3)]
    assert [master.job(each).blocked for each in tasks] == [Block.DEPENDENCY] * 3
    master.edit(CancelJob, first.job_id)
    blocks = [master.job(each).blocked for each in tasks]
    assert blocks == [None, Block.ARRAY_LIMIT, Block.ARRAY_LIMIT]


def test_of_singletons_one_lives_at_a_time_the_oldest_first(master: Master) -> None:
    plain = master.submit()
    jobs = [master.submit(depends=SINGLETON) for _ in range(3)]
    others = master.submit(depends=SINGLETON, caller=ROOT)
    assert eligible(master, others)  # another user's
    assert [eligible(master, job) for job in jobs] == [False, False, False]
    master.edit(CancelJob, plain.job_id)
    assert [eligible(master, job) for job in jobs] == [True, False, False]
    master.edit(CancelJob, jobs[1].job_id)
    assert [eligible(master, job) for job in jobs] == [True, False, False]
    master.edit(CancelJob, jobs[0].job_id)
    assert [eligible(master, job) for job in jobs] == [False, False, True]


def test_singletons_are_told_by_restarted_masters_too(master: Master) -> None:
    first, second = master.submit(depends=SINGLETON), master.submit(depends=SINGLETON)
    master.restart()
    master.tick()
    assert not eligible(master, second)
    master.edit(CancelJob, first.job_id)
    assert eligible(master, second)


def test_tasks_of_one_array_are_not_singletons_to_each_other(master: Master) -> None:
    task = master.submit(array=AskedArray((0, 1), 0), depends=SINGLETON)
    later = master.submit(depends=SINGLETON)
    assert [eligible(master, master.job(JobId(task.job_id + n))) for n in (0, 1)] == [True, True]
    master.edit(CancelJob, task.job_id)
    assert not eligible(master, later)
    master.edit(CancelJob, JobId(task.job_id + 1))
    assert eligible(master, later)


def test_a_begin_is_waited_for_without_anybody_looking(master: Master, agent: SimAgent) -> None:
    at_s = master.clock.now_s() + 100.0
    job = master.submit(2, begin_time_s=at_s)
    assert job.blocked is Block.BEGIN_TIME
    assert master.loop._wake_at_s is not None
    assert master.loop._wake_at_s <= at_s
    reason = master.why(job.job_id).reasons[0]
    assert (reason.code, reason.have) == (ReasonCode.BEGIN_TIME, 100.0)
    master.clock.advance(99.0)
    agent.heartbeat()
    assert not eligible(master, job)
    master.clock.advance(1.0)
    master.turn()
    assert master.attempt(job.job_id).state == "assigned"
    assert agent.node_id in master.wires.sent


def test_a_begin_that_passed_while_the_master_was_away_is_met_at_once(master: Master) -> None:
    job = master.submit(2, begin_time_s=master.clock.now_s() + 10.0)
    master.clock.advance(60.0)
    master.restart()
    master.tick()
    assert eligible(master, job)


def test_a_begin_in_the_past_is_none(master: Master) -> None:
    assert eligible(master, master.submit(2, begin_time_s=master.clock.now_s() - 5.0))


def test_waiting_counts_from_when_a_job_may_wait(master: Master) -> None:
    job = master.submit(2, begin_time_s=master.clock.now_s() + 100.0)
    master.tick(100.0)
    since_s = master.job(job.job_id).queued_since_s
    assert since_s is None or since_s == master.clock.now_s()
    assert master.words(job.job_id)[:2] == ["job_submitted", "job_eligible"]


def test_who_waits_for_many_is_looked_at_when_something_is_new(master: Master) -> None:
    """A job that many depend on says nothing new with most of its events."""
    first = master.submit()
    for _ in range(3):
        master.submit(depends=after(Relation.AFTERANY, first.job_id))
    gates = master.state.jobs.gates
    assert gates.learn(master.state.cluster.jobs, master.job(first.job_id)) == []
    assert ALICE.name == first.user


def calls_of_singletons(tasks: int) -> int:
    """Calls of the turns in which an array comes behind a job of its name, and that job goes."""
    with closing(Master()) as master, counted_calls(of_c=True) as calls:
        before = master.submit()
        master.submit(array=AskedArray(tuple(range(tasks)), 0), depends=SINGLETON)
        master.edit(CancelJob, before.job_id)
    return calls.total()


def test_an_array_of_singletons_costs_each_of_its_tasks_the_same() -> None:
    """Else one `sbatch -a 0-9999 -d singleton` stops the master for ten seconds."""
    assert calls_of_singletons(800) < 5 * calls_of_singletons(200)


def calls_of_names(living: int) -> int:
    """Calls of the index for ten singletons with names of their own, beside one that waits."""
    with closing(Master()) as master:
        for number in range(living):
            master.submit(name=f"other-{number}")
        for _ in range(2):
            master.submit(name="waits", depends=SINGLETON)
        with counted_calls() as calls:
            for number in range(10):
                master.submit(name=f"single-{number}", depends=SINGLETON)
    return sum(count for name, count in calls.items() if name.startswith("control/jobs/gates.py"))


def test_singletons_of_many_names_cost_one_look_at_all_jobs() -> None:
    assert calls_of_names(400) < 1.2 * calls_of_names(100)


def test_the_index_of_names_goes_with_the_last_singleton(master: Master) -> None:
    gates = master.state.jobs.gates
    first = master.submit(name="a")
    waits = [master.submit(name=name, depends=SINGLETON) for name in ("a", "a", "b")]
    other = master.submit(name="b")
    assert {*gates.namesakes[first.user]} == {"a", "b"}
    master.edit(CancelJob, first.job_id)
    assert [eligible(master, job) for job in waits] == [True, False, True]
    master.edit(CancelJob, waits[0].job_id)
    master.edit(CancelJob, other.job_id)
    assert eligible(master, waits[1])
    assert (gates.singletons, gates.namesakes) == ({}, {})


def test_a_dependency_that_names_one_array_often_looks_at_its_tasks_once(master: Master) -> None:
    first = master.submit(array=AskedArray(tuple(range(100)), 0))
    assert first.array is not None
    array_id = first.array.array_id

    def looks(terms: int) -> int:
        delays = (AskedTerm(Relation.AFTER, array_id, None, 60.0 * n) for n in range(terms))
        with counted_calls() as calls:
            master.submit(depends=AskedDependency(tuple(delays), False, False))
        return calls["control/loop/turn.py:known_job"]

    assert looks(50) < looks(1) + 50 * 6


def test_tasks_that_depend_on_an_array_do_not_count_it_one_by_one(master: Master) -> None:
    """Else `dlq update 12 dependency=afterok:13` of two large arrays lasts for minutes."""
    first = master.submit(array=AskedArray(tuple(range(100)), 0))
    second = master.submit(array=AskedArray(tuple(range(3)), 0), hold=True)
    assert first.array is not None
    wish = after(Relation.AFTEROK, first.array.array_id)
    looks = []
    for number in range(3):
        with counted_calls() as calls:
            master.edit(UpdateJob, JobId(second.job_id + number), depends=wish)
        looks.append(calls["control/loop/turn.py:known_job"])
    assert looks[0] > 100 > max(looks[1:])


def test_a_refused_job_leaves_no_count_of_an_array_behind(master: Master, agent: SimAgent) -> None:
    """Nobody kept it up to date, and a later job waited for tasks that had ended meanwhile."""
    first = master.submit(array=AskedArray((0, 1), 0), hold=True)
    assert first.array is not None
    wish = after(Relation.AFTERANY, first.array.array_id)
    with pytest.raises(Unsatisfiable):
        master.submit(10_000, depends=wish)
    master.edit(CancelJob, first.job_id)
    later = master.submit(depends=wish)
    assert master.job(later.job_id).blocked is Block.DEPENDENCY
    master.edit(CancelJob, JobId(first.job_id + 1))
    assert master.job(later.job_id).blocked is None


class Looked(dict[JobId, None]):
    """Counts how often somebody begins at its first entry."""

    looks = 0

    def __iter__(self) -> Iterator[JobId]:
        self.looks += 1
        return super().__iter__()


def test_very_many_stirred_jobs_are_not_taken_from_the_front_of_a_dict(master: Master) -> None:
    """Its first entry is behind all that have left: 200,000 jobs lasted 11 s."""
    blocker = master.submit()
    jobs = [master.submit(depends=after(Relation.AFTERANY, blocker.job_id)) for _ in range(50)]
    stirred = Looked((job.job_id, None) for job in jobs)
    master.state.jobs.gates.stirred = stirred
    master.tick()
    assert stirred.looks < 5
    assert not master.state.jobs.gates.stirred
