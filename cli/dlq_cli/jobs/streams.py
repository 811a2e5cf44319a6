"""The stream of output that a user means: a node's whole, or that of one of several tasks on it."""

from __future__ import annotations

import re
from typing import NamedTuple

from dlq.v1 import job_pb2
from dlq_common.errors import InvalidRequest

ALL = "all"
PER_GPU = "per-gpu"
_ROLE = re.compile(r"(worker|ps)[ :]?([0-9]{1,5})", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


class Stream(NamedTuple):
    """The node rank to read, and the task to read (empty: all lines)."""

    node_rank: int
    task: str = ""


def stream_of(text: str, spec: job_pb2.JobSpec, attempt: job_pb2.Attempt) -> Stream:
    """The stream that `--rank TEXT` means for an attempt of such a job.

    TEXT is a node rank; with per-gpu it is a process's own RANK. With roles it is `worker:2` or
    `ps:0`, and a number is a worker's. InvalidRequest: anything else.
    """
    role = _ROLE.fullmatch(text)
    if role is None and not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"--rank: {text[:64]!r} is none of a number, worker:N, ps:N and `all`")
    if spec.HasField("roles"):
        kind, index = (role[1], int(role[2])) if role else ("worker", int(text))
        return _of_role(kind, index, spec.roles, attempt)
    if role is not None:
        raise InvalidRequest("the job has no roles", hint="--rank R, or --rank all")
    return _of_gpu(int(text), attempt) if spec.launch == PER_GPU else Stream(int(text))


def _gpus(attempt: job_pb2.Attempt) -> list[int]:
    return [len(slot.gpu_indexes) for slot in attempt.lease.allocation.slots]


def _of_gpu(rank: int, attempt: job_pb2.Attempt) -> Stream:
    counts = _gpus(attempt)
    before = 0
    for node_rank, count in enumerate(counts):
        if rank < before + count:
            return Stream(node_rank, f"rank {rank}")
        before += count
    raise InvalidRequest(f"there is no rank {rank}", hint=f"the ranks are 0 to {before - 1}")


def _of_role(kind: str, index: int, roles: job_pb2.RolesSpec, attempt: job_pb2.Attempt) -> Stream:
    """The stream of a role's task. Workers are on the nodes with their GPUs, servers are dealt to
    the nodes.
    """
    counts = _gpus(attempt)
    most = roles.ps_count if kind == "ps" else roles.worker_count
    if index >= most:
        raise InvalidRequest(f"there is no {kind} {index}", hint=f"the job has {most} of them")
    if kind == "ps":
        return Stream(index % max(1, len(counts)), f"ps {index}")
    each = max(1, sum(counts) // roles.worker_count)
    homes = [node for node, count in enumerate(counts) for _ in range(count // each)]
    return Stream(homes[index] if index < len(homes) else 0, f"worker {index}")
