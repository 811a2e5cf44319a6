"""A job in Slurm's words: its reason, its sizes, its times. Every stand-in prints these."""

from __future__ import annotations

import math
import pwd
import re
from collections.abc import Mapping
from functools import cache, lru_cache

from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1 import job_pb2
from dlq_cli.slurm.instants import shown_instant
from dlq_cli.words import ENDED, HOLD_KINDS, SLURM_CODES, shown_state
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.wire import from_duration, from_timestamp
from dlq_compat.job_page import NULL, clock

NOBODY = 4_294_967_294  # Slurm's text for an unknown uid
_NONE = "None"
_CORRESPONDING = re.compile(r"(aftercorr:\d+)_\d+")
_TERM = re.compile(r"([^,?]+)")
UNKNOWN = "Unknown"
CANNOT_OPEN = 53
"""The signal of a job whose output file could not be opened, as in Slurm."""
# The reason why a job waits; other reasons read as Priority, which means that other jobs come
# first.
_WAITS: Mapping[str, str] = {
    "held_user": "JobHeldUser", "held_admin": "JobHeldAdmin", "paused": "JobHeldUser",
    "poison": "JobHoldMaxRequeue", "dependency": "Dependency", "begin_time": "BeginTime",
    "backoff": "BeginTime", "array_limit": "JobArrayTaskLimit", "not_admitted": _NONE,
    "starts_next": _NONE, "no_nodes": "ReqNodeNotAvail", "nodes_closed": "ReqNodeNotAvail",
    "failed_nodes": "ReqNodeNotAvail", "own_only": "ReqNodeNotAvail", "no_such_shape": "BadConstraints",  # noqa: E501
    "runtime": "Resources", "constraint": "Resources", "gpu_type": "Resources",
    "resources": "Resources", "fragmentation": "Resources", "consolidation": "Resources",
    "waiting_for_release": "Resources", "waiting_for_boundary": "Resources",
    "quota": "QOSGrpGRES", "freeze": "SchedDefer", "plan_failed": "SchedDefer",
    "master_starting": "SchedDefer",
}  # fmt: skip
_HELD: Mapping[str, str] = {
    "user": "JobHeldUser", "admin": "JobHeldAdmin", "paused": "JobHeldUser",
    "poison": "JobHoldMaxRequeue", "dependency": "DependencyNeverSatisfied",
}  # fmt: skip
_ENDS: Mapping[str, str] = {
    "user_error": "NonZeroExitCode", "signal": "RaisedSignal", "oom_host": "OutOfMemory",
    "oom_gpu": "NonZeroExitCode", "time_limit": "TimeLimit", "node_lost": "NodeDown",
    "start_failed": "JobLaunchFailure", "join_failed": "JobLaunchFailure", "poison": "JobHoldMaxRequeue", "rejected": "BadConstraints",  # noqa: E501
}  # fmt: skip


def dependency(job: job_pb2.Job) -> str:
    """`afterok:17(unfulfilled)`. A task with `aftercorr` shows the array, as in Slurm."""
    text = _CORRESPONDING.sub(r"\1_*", job.dependency)
    return _TERM.sub(r"\1(unfulfilled)", text) or NULL


def reason(job: job_pb2.Job) -> str:
    """Slurm's word for the reason why a job waits or failed; `None` for all others."""
    state = shown_state(job)
    if state in ENDED:
        if job.end_reason == "signal" and job.exit_signal == CANNOT_OPEN:
            return "JobLaunchFailure"
        if job.end_reason == "signal" and job.exit_signal:
            return f"RaisedSignal:{job.exit_signal}"
        return _ENDS.get(job.end_reason, _NONE)
    if SLURM_CODES[state] != "PD":
        return _NONE
    if held := _HELD.get(HOLD_KINDS.get(job.hold_kind) or ""):
        return held
    return _WAITS.get(job.wait_code, "Priority") if job.wait_code else _NONE


def nodes(job: job_pb2.Job) -> str:
    """The nodes it holds, as a list of hosts; empty: none."""
    return compress_hostlist(job.node_ids)


def node_count(job: job_pb2.Job) -> int:
    """The nodes it has, else those it asks for; a job that takes any split counts as one."""
    return len(job.node_ids) or job.resources.node_count or 1


def cpus(job: job_pb2.Job) -> int:
    """CPUs of all its nodes: those of a job without GPUs, the declared number, or else one on
    each.
    """
    if job.resources.core_count:
        return job.held_core_count or job.resources.core_count
    return node_count(job) * max(1, math.ceil(job.resources.cpu_limit))


def memory_mib(job: job_pb2.Job) -> int:
    """Memory that it has declared for each node; 0: none."""
    return job.resources.memory_limit_bytes >> 20


def gpus_per_node(job: job_pb2.Job) -> str:
    """`gres/gpu:8`, `gres/gpu:h100-80gb:8`."""
    kind = "" if job.resources.or_gpu_types else job.resources.gpu_type
    each = math.ceil(job.resources.gpu_count / node_count(job))
    return f"gres/gpu:{kind}:{each}" if kind else f"gres/gpu:{each}"


def run_s(job: job_pb2.Job) -> float:
    """Seconds run, over all attempts."""
    return from_duration(job.run_duration)


def limit_s(job: job_pb2.Job) -> float | None:
    timed = job.HasField("time_limit_duration")
    return from_duration(job.time_limit_duration) if timed else None


def left_s(job: job_pb2.Job) -> float | None:
    """Seconds that its time limit leaves to its living attempt, or to the next; None: no limit."""
    if job.HasField("time_left_duration"):
        return from_duration(job.time_left_duration)
    limit = limit_s(job)
    return None if limit is None else limit - run_s(job)


def short(seconds: float | None) -> str:
    """A duration as in squeue: `10:29`, `2:10:29`, `1-02:03:04`, UNLIMITED."""
    return clock(None) if seconds is None else _short(int(seconds))


@lru_cache(4_096)  # of thousands of jobs many have run equally long
def _short(seconds: int) -> str:
    text = clock(seconds)
    if "-" in text:
        return text
    return (text[3:] if text.startswith("00:") else text).removeprefix("0") or text


def instant(stamp: Timestamp, unknown: str) -> str:
    """Local time without a zone; `unknown` for an instant that has not come."""
    return instant_s(from_timestamp(stamp), unknown)


def instant_s(at_s: float, unknown: str) -> str:
    """The same of seconds since the epoch."""
    return shown_instant(at_s, unknown)


@cache
def uid(user: str) -> int:
    """The user's number on this host."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return NOBODY
