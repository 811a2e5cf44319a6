"""The judge of reads over takeovers finds every answer that goes back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlq.v1 import event_pb2, job_pb2
from support.seen_reads import SeenReads

COMPLETED, FAILED = job_pb2.JOB_STATE_COMPLETED, job_pb2.JOB_STATE_FAILED


def a_job(version: int = 3, *, ended: bool = True) -> job_pb2.Job:
    job = job_pb2.Job(job_id="1", version=version, attempt_count=1)
    if ended:
        job.state, job.exit_code = COMPLETED, 0
        job.end_time.FromSeconds(1)
    return job


def events(*numbers: int) -> list[event_pb2.Event]:
    return [event_pb2.Event(sequence=number) for number in numbers]


def changed(**fields: int) -> job_pb2.Job:
    job = a_job(4)
    for name, value in fields.items():
        setattr(job, name, value)
    return job


def test_answers_that_go_on_are_right() -> None:
    seen = SeenReads()
    seen.listed([a_job(2, ended=False)], 10)
    seen.listed([a_job(3)], 11)
    seen.listed([a_job(4)], 11)
    seen.told_events("1", events(4, 9))
    seen.told_events("1", events(4, 9, 11))
    assert (seen.wrongs, seen.answers) == ([], 5)


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (lambda seen: seen.listed([], 10), "was told, and then it was not"),
        (lambda seen: seen.listed([a_job(3)], 9), "ended at 10, and then at 9"),
        (lambda seen: seen.listed([a_job(2)], 10), "and then SeenJob(version=2"),
        (lambda seen: seen.listed([a_job(3, ended=False)], 10), "in the same version"),
        (lambda seen: seen.listed([changed(state=FAILED)], 10), "has ended as"),
        (lambda seen: seen.listed([changed(exit_code=3)], 10), "has ended as"),
        (lambda seen: seen.told_events("1", events(4, 10)), "the journal of job 1 was [4, 9]"),
        (lambda seen: seen.told_events("1", events(4)), "the journal of job 1 was [4, 9]"),
    ],
)
def test_an_answer_that_goes_back_is_found(look: Callable[[SeenReads], None], words: str) -> None:
    seen = SeenReads()
    seen.listed([a_job(3)], 10)
    seen.told_events("1", events(4, 9))
    look(seen)
    assert len(seen.wrongs) == 1
    assert words in seen.wrongs[0]
