"""The states of jobs in Slurm's long words."""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_cli.words import SLURM_CODES, shown_state

_LONG = {
    "PD": "PENDING", "CF": "CONFIGURING", "R": "RUNNING", "CG": "COMPLETING", "NF": "NODE_FAIL",
    "CD": "COMPLETED", "F": "FAILED", "CA": "CANCELLED", "TO": "TIMEOUT",
}  # fmt: skip
_BY_REASON = {"oom_host": "OUT_OF_MEMORY", "oom_gpu": "OUT_OF_MEMORY", "node_lost": "NODE_FAIL"}


def code(job: job_pb2.Job) -> str:
    """`PD`, `R`, ... as squeue shows them."""
    return SLURM_CODES.get(shown_state(job), "NF")


def queue_state(job: job_pb2.Job) -> str:
    """`PENDING`, `CONFIGURING`, ... as squeue's %T."""
    return _LONG[code(job)]


def account_state(job: job_pb2.Job) -> str:
    """As sacct: what is starting or leaving runs, and a failure says of what kind. A node that is silent
    still holds its job, which is not lost.
    """
    word = queue_state(job)
    if job.HasField("attempt_state"):
        return "RUNNING"
    return _BY_REASON.get(job.end_reason, word) if word == "FAILED" else word


def wanted(words: list[str]) -> frozenset[str]:
    """Codes of `R,PENDING`; empty for all."""
    short = {long: key for key, long in _LONG.items()}
    found = {short.get(word.upper(), word.upper()) for word in words}
    return frozenset() if "ALL" in found else frozenset(found)
