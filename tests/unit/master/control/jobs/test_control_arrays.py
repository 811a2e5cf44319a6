"""Arrays: all tasks or none in one commit, a limit on how many are in the queue, and restarts."""

import pytest

from dlq_common.errors import AlreadyExists, QuotaExceeded
from dlq_master.control.stimuli import AskedArray, CancelJob, HoldJob, Launch, ReleaseJob
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.arrays import array_of, task_of, tasks
from dlq_master.model.jobs.eligible import Block
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.why import ReasonCode
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent


def an_array(master: Master, count: int = 6, limit: int = 0, gpus: int = 1) -> list[Job]:
    """All tasks, after their submission."""
    first = master.submit(gpus, array=AskedArray(tuple(range(count)), limit))
    assert first.array is not None
    return list(tasks(master.loop.published.job, first.array))


def finish(agent: SimAgent, job_id: JobId, code: int = 0) -> None:
    key = AttemptKey(job_id, 1)
    agent.obey()
    agent.start(key)
    agent.exit(key, code)
    agent.report()


def in_the_queue(master: Master, array: list[Job]) -> list[int]:
    now = [master.job(task.job_id) for task in array]
    return [job.array_index for job in now if job.blocked is None and not job.ended]


def test_an_array_is_one_batch_and_one_spec(master: Master) -> None:
    commits = master.store.commits
    array = an_array(master)
    assert master.store.commits == commits + 1
    array_id = array[0].job_id - 1
    assert [task.job_id - array_id for task in array] == [1, 2, 3, 4, 5, 6]
    assert [task.array_index for task in array] == [0, 1, 2, 3, 4, 5]
    assert {task.spec_id for task in array} == {array[0].job_id}
    assert master.loop.published.job(JobId(array_id)) is None
    assert master.store.spec(array[0].job_id) == b"spec"
    assert master.store.spec(array[1].job_id) is None
    assert master.submit().job_id == array[-1].job_id + 1


def test_a_commit_that_fails_leaves_no_task_behind(master: Master) -> None:
    before = len(master.store.load().jobs)
    master.store.fail_with = OSError("disk")
    with pytest.raises(OSError, match="disk"):
        an_array(master)
    master.store.fail_with = None
    assert len(master.store.load().jobs) == before


def test_a_repeated_submission_is_the_same_array(master: Master) -> None:
    asked = AskedArray((0, 1, 2), 0)
    first = master.submit(array=asked, request_id="r")
    assert master.submit(array=asked, request_id="r") == first
    assert len(master.state.cluster.jobs) == 3
    master.restart()
    assert master.submit(array=asked, request_id="r").job_id == first.job_id
    with pytest.raises(AlreadyExists):
        master.submit(array=asked, request_id="r", digest="other")


def test_an_array_that_exceeds_what_a_user_may_have_is_refused_whole(master: Master) -> None:
    with pytest.raises(QuotaExceeded, match="10001 more"):
        an_array(master, 10_001)
    assert not master.state.cluster.jobs


def test_a_launch_tells_a_task_of_its_place(master: Master, agent: SimAgent) -> None:
    array = an_array(master, 2)
    launches = [command for _, command in master.wires.sent[agent.node_id]]
    assert [
        (launch.array_index, launch.spec) for launch in launches if isinstance(launch, Launch)
    ] == [(0, b"spec"), (1, b"spec")]
    assert array[0].array == array[1].array


def test_no_more_tasks_than_the_limit_are_in_the_queue(master: Master, agent: SimAgent) -> None:
    array = an_array(master, 6, limit=2)
    assert in_the_queue(master, array) == [0, 1]
    assert master.state.cluster.waiting.count == 0  # both run
    assert master.why(array[4].job_id).reasons[0].code is ReasonCode.ARRAY_LIMIT
    finish(agent, array[1].job_id)
    assert in_the_queue(master, array) == [0, 2]
    finish(agent, array[0].job_id, code=1)
    assert in_the_queue(master, array) == [2, 3]


def test_a_restart_forgets_neither_who_is_in_nor_who_is_next(
    master: Master, agent: SimAgent
) -> None:
    array = an_array(master, 5, limit=2)
    agent.cut()
    master.restart()
    agent.hello()
    master.tick()
    assert in_the_queue(master, array) == [0, 1]
    finish(agent, array[0].job_id)
    assert in_the_queue(master, array) == [1, 2]


def test_a_cancelled_task_keeps_its_place_until_its_gpus_are_free(
    master: Master, agent: SimAgent
) -> None:
    array = an_array(master, 4, limit=1)
    agent.obey()
    key = AttemptKey(array[0].job_id, 1)
    agent.start(key)
    agent.report()
    master.edit(CancelJob, array[0].job_id)
    assert in_the_queue(master, array) == []
    agent.obey()
    agent.exit(key, 0)
    agent.report()
    assert in_the_queue(master, array) == [1]


def test_cancelling_tasks_that_wait_at_the_door_lets_nobody_in(master: Master) -> None:
    array = an_array(master, 4, limit=1)
    master.edit(CancelJob, array[1].job_id)
    assert in_the_queue(master, array) == [0]
    master.edit(CancelJob, array[0].job_id)
    assert in_the_queue(master, array) == [2]


def test_a_held_task_gives_its_place_away_and_stands_at_the_door_again(master: Master) -> None:
    array = an_array(master, 4, limit=1)
    master.edit(HoldJob, array[0].job_id)
    assert in_the_queue(master, array) == [1]
    assert master.job(array[0].job_id).state is JobState.HELD
    master.edit(ReleaseJob, array[0].job_id)
    assert master.job(array[0].job_id).blocked is Block.ARRAY_LIMIT
    master.edit(CancelJob, array[1].job_id)
    assert in_the_queue(master, array) == [0]


def test_an_array_that_is_submitted_on_hold_moves_when_it_is_released(master: Master) -> None:
    first = master.submit(array=AskedArray((0, 1, 2), 1), hold=True)
    assert first.array is not None
    array = list(tasks(master.loop.published.job, first.array))
    assert {task.state for task in array} == {JobState.HELD}
    for task in array:
        master.edit(ReleaseJob, task.job_id)
    assert in_the_queue(master, array) == [0]


def test_a_limit_as_large_as_the_array_is_none(master: Master) -> None:
    array = an_array(master, 3, limit=3)
    assert array[0].array is not None
    assert array[0].array.concurrent == 0


def test_tasks_are_found_by_index(master: Master) -> None:
    first = master.submit(array=AskedArray((3, 10, 20, 30), 0))
    job_of = master.loop.published.job
    array = array_of(job_of, JobId(first.job_id - 1))
    assert array is not None
    assert [getattr(task_of(job_of, array, i), "array_index", None) for i in (3, 20, 30)] == [
        3,
        20,
        30,
    ]
    assert task_of(job_of, array, 4) is None
    assert array_of(job_of, first.job_id) is None


def test_ten_thousand_tasks_are_one_turn_and_little_memory(master: Master) -> None:
    assert config_of().jobs.queued_per_user == 10_000
    array = an_array(master, 10_000, limit=4)
    assert len(array) == 10_000
    shared = {id(value) for task in array for value in (task.request, task.rules, task.array)}
    assert len(shared) == 3
    assert in_the_queue(master, array) == [0, 1, 2, 3]
