"""The enums of the wire as the words that users see; one table for each, made once."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.descriptor import EnumDescriptor

from dlq.v1 import job_pb2, lease_pb2, node_pb2

ENDED = frozenset({"completed", "failed", "cancelled", "timed_out"})

# Slurm's two-letter codes of the states that jobs are shown in, for `%t` and `-t PD,R`.
SLURM_CODES: Mapping[str, str] = {
    "pending": "PD", "queued": "PD", "held": "PD", "assigned": "CF", "preparing": "CF",
    "starting": "CF", "running": "R", "profiling": "R", "pausing": "CG", "unknown": "NF", "completed": "CD",  # noqa: E501
    "failed": "F", "cancelled": "CA", "timed_out": "TO",
}  # fmt: skip


def _words(enum: EnumDescriptor, prefix: str) -> Mapping[int, str | None]:
    """Numbers to lower-case words; the unspecified one, which is never sent, is None."""
    return {
        value.number: None if value.number == 0 else value.name.removeprefix(prefix).lower()
        for value in enum.values
    }


JOB_STATES = _words(job_pb2.JobState.DESCRIPTOR, "JOB_STATE_")
ATTEMPT_STATES = _words(job_pb2.AttemptState.DESCRIPTOR, "ATTEMPT_STATE_")
HOLD_KINDS = _words(job_pb2.HoldKind.DESCRIPTOR, "HOLD_KIND_")
NODE_STATES = _words(node_pb2.NodeState.DESCRIPTOR, "NODE_STATE_")
LEASE_KINDS = _words(lease_pb2.LeaseKind.DESCRIPTOR, "LEASE_KIND_")

# The words that `-t` takes.
SHOWN_STATES = tuple(SLURM_CODES)


def shown_state(job: job_pb2.Job) -> str:
    """The state a user sees: the living attempt's, else the job's.

    A state that only a newer master knows is `unknown`.
    """
    if job.profiling:
        return "profiling"
    if job.HasField("attempt_state"):
        return ATTEMPT_STATES.get(job.attempt_state) or "unknown"
    return JOB_STATES.get(job.state) or "unknown"


def has_ended(job: job_pb2.Job) -> bool:
    """Whether nothing of the job lives any more."""
    return shown_state(job) in ENDED
