"""Blocks of jobs: all jobs once in the order of their ids, and another block after each change."""

from __future__ import annotations

from random import Random

from dlq_master.control.read_model.job_blocks import EVERYBODY, JobBlocks
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import Request
from support.counted_calls import counted_calls

USERS = ("alice", "bob", "carol")


def a_job(number: int, user: str = "alice", person: str = "", submit_time_s: float = 0.0) -> Job:
    return Job(
        JobId(number), user, "train", Request(gpus=1), submit_time_s,
        person=person, state=JobState.QUEUED,
    )  # fmt: skip


def _ids(blocks: JobBlocks, user: str, after: int = 0) -> list[int]:
    found = [blocks.block(user, number) for number in blocks.numbers(user, after)]
    return [job.job_id for block in found for job in block.jobs if job.job_id > after]


def test_blocks_are_all_jobs_of_each_user_whatever_comes_and_goes() -> None:
    draw, jobs = Random(7), dict[JobId, Job]()
    blocks, last = JobBlocks(jobs), 0
    for step in range(2_000):
        if jobs and draw.random() < 0.4:
            blocks.gone(jobs.pop(draw.choice(list(jobs))))
        elif jobs and draw.random() < 0.3:
            before = jobs[draw.choice(list(jobs))]
            job = jobs[before.job_id] = before._replace(version=before.version + 1)
            blocks.changed(before, job)
        else:
            last += draw.choice((1, 1, 3, 100))
            job = jobs[JobId(last)] = a_job(last, draw.choice(USERS))
            blocks.changed(None, job)
        if step % 20 == 0:
            after = draw.choice((0, draw.randrange(last + 1)))
            for user in (EVERYBODY, *USERS):
                own = (job for job in jobs.values() if user in (EVERYBODY, job.user))
                assert _ids(blocks, user, after) == sorted(
                    job.job_id for job in own if job.job_id > after
                )
                for number in blocks.numbers(user, 0):
                    assert all(jobs[job.job_id] is job for job in blocks.block(user, number).jobs)


def test_a_block_is_the_same_object_until_one_of_its_jobs_changes() -> None:
    jobs = {JobId(number): a_job(number, USERS[number % 2]) for number in range(1, 200)}
    blocks = JobBlocks(jobs)
    numbers = blocks.numbers(EVERYBODY, 0)
    made = {(user, n): blocks.block(user, n) for user in (EVERYBODY, *USERS[:2]) for n in numbers}
    before, after = jobs[JobId(70)], jobs[JobId(70)]._replace(nice=3)
    jobs[JobId(70)] = after
    blocks.changed(before, after)
    others = {place for place in made if blocks.block(*place) is not made[place]}
    assert others == {(EVERYBODY, 1), ("alice", 1)}
    assert blocks.block("alice", 1).jobs[3] is after


def test_a_change_costs_the_same_whatever_the_number_of_jobs() -> None:
    counts = []
    for many in (100, 10_000):
        jobs = {JobId(number): a_job(number) for number in range(1, many + 1)}
        blocks = JobBlocks(jobs)
        _ids(blocks, EVERYBODY)
        with counted_calls() as calls:
            for number in range(1, 51):
                before = jobs[JobId(number)]
                job = jobs[JobId(number)] = before._replace(nice=1)
                blocks.changed(before, job)
        counts.append(sum(calls.values()))
    assert counts[0] == counts[1]


def test_a_block_knows_what_its_jobs_have_in_common() -> None:
    jobs = {
        JobId(1): a_job(1, "alice", "alice#1", 5.0),
        JobId(2): a_job(2, "alice", "", 9.0)._replace(queue="urgent"),
        JobId(3): a_job(3, "alice", "", 7.0)._replace(state=JobState.COMPLETED, end_time_s=8.0),
        JobId(4): a_job(4, "alice", "alice#1", 6.0)._replace(live_attempt=1),
        JobId(64): a_job(64, "bob"),
    }
    blocks = JobBlocks(jobs)
    mixed, plain = blocks.block("alice", 0), blocks.block(EVERYBODY, 1)
    assert {owner.job_id for owner in mixed.owners} == {1, 3}, "the oldest of each person"
    assert mixed.queues == {"default", "urgent"}
    assert mixed.states == {JobState.QUEUED, JobState.COMPLETED}
    assert (mixed.living, mixed.ended) == (True, True)
    assert (plain.living, plain.ended, *plain.queues) == (False, False, "default")


def test_nothing_is_kept_of_users_without_jobs() -> None:
    """Anybody may ask for any word of megabytes."""
    blocks = JobBlocks({JobId(1): a_job(1)})
    for number in range(100):
        assert not blocks.numbers(f"nobody-{number}", 0)
    assert list(blocks.numbers("alice", 0)) == [0]
    assert set(blocks._numbers) == {"alice"}
