"""Which of dlq's states the master is asked for, where squeue wants some of Slurm's."""

import pytest

from dlq.v1 import job_pb2
from dlq_cli.lists.slurm_states import queue_state, words_of
from dlq_cli.words import shown_state

_REASONS = ("", "oom_host", "oom_gpu", "node_lost")
_JOBS = [
    job_pb2.Job(state=state, end_reason=reason, stop_cause=cause)
    for state in job_pb2.JobState.values()
    for reason in _REASONS
    for cause in ("", "cancel")
    if state
] + [
    job_pb2.Job(state=job_pb2.JOB_STATE_QUEUED, attempt_state=state, stop_cause=cause)
    for state in job_pb2.AttemptState.values()
    for cause in ("", "cancel")
    if state
]


def _is_shown(job: job_pb2.Job) -> bool:
    try:
        return bool(queue_state(job))
    except KeyError:  # of an attempt that has ended, which no job has
        return False


@pytest.mark.parametrize("wanted", sorted({queue_state(job) for job in _JOBS if _is_shown(job)}))
def test_every_job_in_a_state_is_among_those_that_the_master_is_asked_for(wanted: str) -> None:
    asked = words_of(frozenset((wanted,)))
    for job in filter(_is_shown, _JOBS):
        if queue_state(job) == wanted:
            assert shown_state(job) in asked


def test_a_state_that_no_job_here_has_asks_for_all() -> None:
    assert words_of(frozenset(("RESIZING",))) == words_of(frozenset()) == []
