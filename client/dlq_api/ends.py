"""Ends of jobs as exceptions: each tells how the job ended, its first failing rank and its output.

A failed call is another matter: it raises an error of `dlq_common.errors`, and the job goes on.
"""

from __future__ import annotations

from typing import ClassVar

from dlq.v1 import job_pb2, job_service_pb2
from dlq_cli.exit_codes import code_of_job
from dlq_cli.jobs.held import is_poison
from dlq_cli.words import shown_state
from dlq_common.errors import DlqError


class JobFailed(DlqError):
    """The job has ended without its result. `reason_word` is the master's word for the end."""

    reason: ClassVar[str] = "JOB_FAILED"

    def __init__(self, answer: job_service_pb2.GetJobResponse) -> None:
        job = answer.job
        self.job_id: str = job.job_id
        self.reason_word: str = job.end_reason or shown_state(job)
        self.exit_code: int | None = job.exit_code if job.HasField("exit_code") else None
        self.exit_signal: int = job.exit_signal
        first = _first_failed(answer)
        self.rank: int | None = first.node_rank if first else None
        self.lines: tuple[str, ...] = tuple(first.last_lines) if first else ()
        self.error: str = first.error if first else ""
        super().__init__(
            self._sentence(job), hint=f"dlq logs {job.job_id}", job_id=job.job_id,
            end=self.reason_word,
        )  # fmt: skip

    def _sentence(self, job: job_pb2.Job) -> str:
        how = f"signal {self.exit_signal}" if self.exit_signal else ""
        if not how and self.exit_code:
            how = f"exit code {self.exit_code}"
        words = [f"job {self.job_id} {_STATES[shown_state(job)]}: {self.reason_word}"]
        words += [how] if how else []
        words += [f"rank {self.rank}"] if self.rank is not None else []
        words += [self.error] if self.error else []
        told = ", ".join(words)
        return "\n".join((told, *(f"  {line}" for line in self.lines)))


class JobCancelled(JobFailed):
    """Somebody, or the master by a rule of the job, has ended it."""

    reason = "JOB_CANCELLED"


class JobTimedOut(JobFailed):
    """It was stopped at its time limit."""

    reason = "JOB_TIMED_OUT"


class JobPoisoned(JobFailed):
    """The master holds it, because its starts fail again and again."""

    reason = "JOB_POISONED"


class WaitTimeout(DlqError, TimeoutError):
    """The wait is over, and the job is not. It goes on."""

    reason = "WAIT_TIMEOUT"


class FunctionLost(DlqError):
    """The job of a function has ended well, and its result is not there or cannot be trusted."""

    reason = "FUNCTION_LOST"


class FunctionFailed(DlqError):
    """A function has raised something that cannot be rebuilt here. `traceback` is its text."""

    reason = "FUNCTION_FAILED"

    def __init__(self, traceback: str) -> None:
        self.traceback = traceback
        super().__init__(traceback.strip())


_STATES = {
    "completed": "has completed",
    "failed": "has failed",
    "cancelled": "was cancelled",
    "timed_out": "was stopped at its time limit",
    "held": "is held by the master",
}
_KINDS = {"cancelled": JobCancelled, "timed_out": JobTimedOut, "held": JobPoisoned}


def is_over(job: job_pb2.Job) -> bool:
    """Whether the job will not go on by itself."""
    return shown_state(job) in _STATES and (shown_state(job) != "held" or is_poison(job))


def is_well(job: job_pb2.Job) -> bool:
    """Whether it has ended as its program said, with the code 0."""
    return shown_state(job) == "completed" and not exit_code_of(job)


def exit_code_of(job: job_pb2.Job) -> int:
    """The exit code of an ended job, as `dlq wait` tells it."""
    return code_of_job(
        completed=shown_state(job) == "completed",
        exit_code=job.exit_code if job.HasField("exit_code") else None,
        exit_signal=job.exit_signal,
    )


def failure_of(answer: job_service_pb2.GetJobResponse) -> JobFailed:
    """The exception for the end of this job."""
    return _KINDS.get(shown_state(answer.job), JobFailed)(answer)


def _first_failed(answer: job_service_pb2.GetJobResponse) -> job_pb2.Rank | None:
    """The rank that failed first in the last attempt."""
    for attempt in list(answer.attempts)[-1:]:
        for rank in attempt.ranks:
            if attempt.HasField("first_failed_rank"):
                if rank.node_rank == attempt.first_failed_rank:
                    return rank
            elif rank.error:
                return rank
    return None
