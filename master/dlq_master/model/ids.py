"""Identities: jobs, nodes, attempts and the fence that tells a stale answer from a true one."""

from __future__ import annotations

from typing import NamedTuple, NewType

JobId = NewType("JobId", int)  # short integer; a decimal string on the wire
NodeId = NewType("NodeId", str)


class AttemptKey(NamedTuple):
    """One try of a job; written `17.2` for the second try of job 17."""

    job_id: JobId
    number: int

    def __str__(self) -> str:
        return f"{self.job_id}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> AttemptKey:
        """The key written by `str`; raises ValueError on anything else."""
        job, dot, number = text.partition(".")
        if not (dot and job.isdecimal() and number.isdecimal() and text.isascii()):
            raise ValueError(f"not an attempt key: {text!r} (expected JOB.NUMBER, as in 17.2)")
        return cls(JobId(int(job)), int(number))


class Fence(NamedTuple):
    """Rises with every placement (attempt) and every master start (epoch).

    A result counts only with the fence stored at its placement; a command is refused when its
    epoch is lower than one already seen.
    """

    epoch: int
    attempt: int
