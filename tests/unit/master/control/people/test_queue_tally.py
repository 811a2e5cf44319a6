"""The numbers of a queue are those of its jobs after any changes, and cost no look at a job."""

from __future__ import annotations

from collections import Counter
from random import Random

from dlq_master.control.config import MasterConfig
from dlq_master.control.people import queues
from dlq_master.control.people.queue_tally import QueuePart, QueueTally
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import CORE_TYPE, Request
from support.counted_calls import counted_calls


def _some_job(draw: Random, number: int) -> Job:
    gpu_type = CORE_TYPE if draw.random() < 0.3 else None
    request = Request(gpus=draw.choice((1, 4)), gpu_type=gpu_type)
    state = draw.choice((JobState.QUEUED, JobState.HELD, JobState.PENDING, JobState.COMPLETED))
    return Job(
        JobId(number), "alice", "train", request, 0.0, state=state, level=draw.randrange(2),
        queue=draw.choice(("default", "few")),
        live_attempt=1 if state is JobState.QUEUED and draw.random() < 0.5 else None,
    )  # fmt: skip


def test_the_tally_is_that_of_the_jobs_after_any_changes() -> None:
    draw, tally, jobs = Random(5), QueueTally(), dict[int, Job]()
    for _ in range(1_000):
        number = draw.randrange(1, 60)
        job = _some_job(draw, number)
        tally.change(jobs.get(number), job)
        jobs[number] = job
    expected: Counter[tuple[str, QueuePart, int]] = Counter()
    gpus: Counter[tuple[str, QueuePart]] = Counter()
    cores: Counter[tuple[str, QueuePart]] = Counter()
    for job in jobs.values():
        if job.live_attempt is not None:
            place = QueuePart.RUNNING
        elif job.waiting:
            place = QueuePart.WAITING
        elif job.state is JobState.HELD:
            place = QueuePart.HELD
        else:
            continue
        expected[job.queue, place, job.level] += 1
        gpus[job.queue, place] += job.request.real_gpus
        cores[job.queue, place] += job.request.cores
    assert +tally.jobs == expected
    assert (+tally.gpus, +tally.cores) == (+gpus, +cores)
    held = sum(job.queue == "few" and job.state is JobState.HELD for job in jobs.values())
    assert tally.held("few") == held


def test_a_reader_of_queues_looks_at_no_job() -> None:
    counts, tally = [], QueueTally()
    for number in range(1, 2_001):
        tally.change(None, _some_job(Random(number), number))
        if number in (20, 2_000):
            with counted_calls() as calls:
                queues.count(MasterConfig(), "fifo", (), tally)
            counts.append(sum(calls.values()))
    assert counts[1] <= counts[0] + 6, "a count for each level"
