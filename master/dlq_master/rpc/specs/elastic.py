"""Elastic jobs on the wire: their sizes (numbers of GPUs), checked, and their state."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import job_pb2
from dlq.v1.job_service_pb2 import UpdateJobRequest
from dlq_common.errors import InvalidRequest
from dlq_common.live_resize import LIVE, flag_that_would_win, names_torchrun
from dlq_common.text.names import shown
from dlq_common.text.sizes import checked, format_sizes
from dlq_master.control.stimuli import SAME, Same
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.jobs.job import Job

RESTART = "restart"
RESIZES = (RESTART, LIVE)
_FIXED = "workers and servers have a fixed number: such a job is not elastic"


def check_elastic(spec: job_pb2.JobSpec) -> None:
    """InvalidRequest names what is wrong with the sizes, or does not go with them."""
    if not spec.HasField("elastic"):
        return
    sizes = _sizes(spec.elastic, "spec.elastic")
    asked = spec.resources
    if asked.gpu_count not in sizes:
        told = format_sizes(sizes)
        raise _wrong(f"{asked.gpu_count} GPUs are asked for, which are none of its sizes ({told})")
    if asked.HasField("node_count"):
        each = asked.gpu_count // asked.node_count
        if any(size % each for size in sizes):
            raise _wrong(f"with {each} GPUs on every node its sizes are multiples of {each}")
    if spec.elastic.resize == LIVE:
        _check_live(spec)
    if spec.HasField("roles"):
        raise _wrong(_FIXED)
    if spec.deadlines and asked.gpu_count != sizes[0]:
        raise _wrong(
            f"a deadline is promised for its base of {sizes[0]} GPUs, not for {asked.gpu_count}"
        )


def sizes_of(spec: job_pb2.JobSpec) -> tuple[int, ...]:
    """The sizes of a checked spec in rising order; empty: it is not elastic."""
    return tuple(spec.elastic.gpu_counts)


def check_new_sizes(request: UpdateJobRequest, spec: job_pb2.JobSpec) -> None:
    """InvalidRequest: this job cannot have sizes, by its submission."""
    if request.HasField("elastic") and spec.HasField("roles"):
        raise InvalidRequest(f"elastic: {_FIXED}", field="elastic")


def new_sizes(request: UpdateJobRequest) -> tuple[int, ...] | Same:
    """The sizes of an update; empty: only the requested size."""
    if request.clear_elastic and request.HasField("elastic"):
        raise InvalidRequest("sizes are given and taken away", field="clear_elastic")
    if request.clear_elastic:
        return ()
    return _sizes(request.elastic, "elastic") if request.HasField("elastic") else SAME


def add_elasticity(message: job_pb2.Job, job: Job, attempt: Attempt | None) -> None:
    """Add the sizes that are allowed and the present size, if the job is elastic."""
    if not job.request.sizes:
        return
    held = following = 0
    if attempt is not None:
        held = attempt.lease.allocation.width
        following = _following(attempt, held)
    elif job.regrant is not None:
        following = job.regrant.width
    elastic = message.elastic
    elastic.gpu_counts.extend(job.request.sizes)
    elastic.current_gpu_count, elastic.next_gpu_count = held, following
    elastic.resize = LIVE if job.request.live else RESTART
    elastic.resize_count = job.resizes
    for pace in job.paces:
        relative = job.speed_on(pace.gpus) if job.speeds else 0.0
        rate = 1.0 / pace.step_s
        elastic.speeds.add(
            gpu_count=pace.gpus,
            steps_per_second=rate,
            relative_speed=relative,
            gpu_type=pace.gpu_type,
        )


def fit_to_sizes(spec: job_pb2.JobSpec, sizes: tuple[int, ...], *, fixed: bool = False) -> None:
    """Change the spec of a launch to the present sizes, which an update may have changed.

    `fixed`: no rank joins or leaves this attempt.
    """
    if fixed and spec.elastic.resize == LIVE:
        spec.elastic.resize = RESTART
    if not sizes:
        spec.ClearField("elastic")
    elif sizes != sizes_of(spec):
        del spec.elastic.gpu_counts[:]
        spec.elastic.gpu_counts.extend(sizes)


# --- helpers
#   ----------------------------------------------------------------------------------------


def _sizes(asked: job_pb2.ElasticSpec, field: str) -> tuple[int, ...]:
    if asked.resize and asked.resize not in RESIZES:
        words = ", ".join(RESIZES)
        raise InvalidRequest(
            f"elastic.resize {shown(asked.resize)} is not one of {words}", field=field
        )
    counts: Sequence[int] = asked.gpu_counts
    try:
        return checked(tuple(counts))
    except ValueError as error:
        raise InvalidRequest(f"elastic: {error}", field=field) from None


def _following(attempt: Attempt, held: int) -> int:
    if attempt.resize is not None and attempt.stop_cause is None:
        left = held - attempt.leaves.width
        return left if left != held else 0
    return 0 if attempt.regrant is None else attempt.regrant.width


def _check_live(spec: job_pb2.JobSpec) -> None:
    """InvalidRequest: torchrun cannot resize the job while it runs."""
    live = "a job that is resized live"
    if not spec.resources.HasField("node_count"):
        raise _wrong(f"{live} names its GPUs per node: whole nodes come and go")
    if spec.launch:
        raise _wrong(f"{live} is started by torchrun, one for each node, not {spec.launch}")
    if spec.compat:
        raise _wrong(f"{live} finds no variables of {spec.compat}: they stay as at its start")
    program = spec.script or " ".join(spec.command)
    if spec.preempt.signal_to != "ranks" and not names_torchrun(program):
        raise _wrong(
            f"{live} is started by torchrun, and its command names none (where a script of its own "
            "does: preempt.signal_to = ranks)"
        )
    if flag := flag_that_would_win(program):
        raise _wrong(f"torchrun's {shown(flag)} would win over the cluster's settings")


def _wrong(what: str) -> InvalidRequest:
    return InvalidRequest(f"elastic: {what}", field="spec.elastic")
