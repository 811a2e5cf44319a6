"""The enums of the wire as the words that users see; one table for each, made once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from google.protobuf.descriptor import EnumDescriptor

from dlq.v1 import job_pb2, lease_pb2, node_pb2

ENDED = frozenset({"completed", "failed", "cancelled", "timed_out"})

# Slurm's two-letter codes of the states that jobs are shown in, for `%t` and `-t PD,R`. A node that
# is silent still holds its job: NF is an end, and programs would submit such a job again.
SLURM_CODES: Mapping[str, str] = {
    "pending": "PD", "queued": "PD", "held": "PD", "assigned": "CF", "preparing": "CF",
    "starting": "CF", "running": "R", "profiling": "R", "suspended": "S", "pausing": "CG", "unknown": "R", "completed": "CD",  # noqa: E501
    "failed": "F", "cancelled": "CA", "timed_out": "TO",
}  # fmt: skip


@cache
def enum_words(enum: EnumDescriptor) -> Mapping[int, str | None]:
    """Numbers to lower-case words; the unspecified one, which is never sent, is None."""
    prefix = re.sub("(?<=[a-z])(?=[A-Z])", "_", enum.name).upper() + "_"
    return {
        value.number: None if value.number == 0 else value.name.removeprefix(prefix).lower()
        for value in enum.values
    }


JOB_STATES = enum_words(job_pb2.JobState.DESCRIPTOR)
ATTEMPT_STATES = enum_words(job_pb2.AttemptState.DESCRIPTOR)
HOLD_KINDS = enum_words(job_pb2.HoldKind.DESCRIPTOR)
NODE_STATES = enum_words(node_pb2.NodeState.DESCRIPTOR)
LEASE_KINDS = enum_words(lease_pb2.LeaseKind.DESCRIPTOR)

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
