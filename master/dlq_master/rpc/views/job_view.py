"""A job as its owner sees it, in two parts: one from its row, and one from this moment.

Concatenated bytes of messages merge on the wire. So the first part is encoded once for each change
of a job, and lists send it again unchanged (job_rows.py). A field that is a message is in only one
of the parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from operator import itemgetter
from typing import TypeVar

from dlq.v1 import job_pb2, resource_pb2
from dlq_common.job_fields.reading.words import ATTEMPT_SCOPE, JOB_SCOPE
from dlq_common.text.wire import filled, to_duration, to_timestamp
from dlq_master.control.config import OTHERS
from dlq_master.control.nodes.labels import named
from dlq_master.control.read_model.published import Published
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.grace import grace_s, limit_left_s, work_at_risk_s
from dlq_master.model.jobs.job import Checkpoint, Job
from dlq_master.model.jobs.naming import shown_dependency
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Allocation, Request
from dlq_master.model.why import ReasonCode
from dlq_master.planner.forecasts import Range
from dlq_master.rpc.specs.deadlines import promise_message
from dlq_master.rpc.specs.elastic import add_elasticity
from dlq_master.rpc.views.convert import (
    ATTEMPT_STATES,
    HOLD_KINDS,
    JOB_STATES,
    range_message,
    suspension_message,
)
from dlq_master.rpc.views.preemption_view import add_preemptions, add_stop_loss, estimate_message

MOST_ALIKE = 4_096  # waits that many jobs share
T = TypeVar("T")


def job_message(
    job: Job, read: Published, now_s: float, why: ReasonCode | None = None
) -> job_pb2.Job:
    """A job as its owner sees it at `now_s`, with its live attempt.

    `why`: the reasons for its wait, if they were just found; None: they are looked up.
    """
    message = standing(job, read)
    message.MergeFromString(present(job, read, now_s, read.start_range(job), why))
    return message


def standing(job: Job, read: Published) -> job_pb2.Job:
    """The part that is constant until the job or the policy changes."""
    message = job_pb2.Job(
        job_id=str(job.job_id),
        user=job.user,
        name=job.name,
        queue=job.queue,
        state=JOB_STATES[job.state],
        hold_kind=HOLD_KINDS[job.hold] if job.hold else job_pb2.HOLD_KIND_UNSPECIFIED,
        hold_reason=job.hold_reason,
        held_by=job.held_by,
        resources=request_message(job.request),
        version=job.version,
        submit_time=to_timestamp(job.submit_time_s),
        end_reason=job.end_reason.value if job.end_reason is not None else "",
        exit_code=job.exit_code,
        exit_signal=job.signal or 0,
        level=job.level,
        attained_gpu_seconds=job.attained_gpu_s,
        attempt_count=job.attempts,
        preemption_count=job.preemptions,
        lost_gpu_seconds=job.lost_gpu_s,
        gpu_seconds=job.total_gpu_s,
        team=job.team,
        nice=job.nice,
        queue_time=to_timestamp(job.queued_since_s),
        start_time=to_timestamp(job.first_start_time_s),
        end_time=to_timestamp(job.end_time_s),
        time_limit_duration=to_duration(job.time_limit_s),
        checkpoint=checkpoint_message(job.checkpoint),
        array_task=_array_task_message(job),
    )
    if not job.ended:
        message.grace_duration.CopyFrom(to_duration(grace_s(job.saves, job.rules)))
        message.observed_save_count = len(job.saves)
        message.observed_resume_count = len(job.resumes)
    add_preemptions(message, job, read)
    if any(job.restart_counts):
        counts = job.restart_counts._asdict()
        message.restart_counts.update({cause: count for cause, count in counts.items() if count})
    if job.live_attempt is None:
        _add_run(message, job, None, read, 0.0)  # no part of it changes with time
    return message


def own_part(job: Job) -> bytes:
    """The part of `standing` in which alike jobs differ, such as those of one loop."""
    message = job_pb2.Job(
        job_id=str(job.job_id),
        submit_time=to_timestamp(job.submit_time_s),
        queue_time=to_timestamp(job.queued_since_s),
        array_task=_array_task_message(job),
    )
    return message.SerializeToString()


def alike_part(job: Job, read: Published) -> bytes:
    """The rest of `standing`, equal for jobs with equal `likeness`."""
    message = standing(job, read)
    for name in ("job_id", "submit_time", "queue_time", "array_task"):
        message.ClearField(name)
    return message.SerializeToString()


# Fields in `own_part`, and fields that no message shows.
_OWN = frozenset(
    {
        "job_id", "submit_time_s", "queued_since_s", "array", "array_index",
        "sequence", "family", "program", "person",
    }
)  # fmt: skip
likeness = itemgetter(*(place for place, name in enumerate(Job._fields) if name not in _OWN))


def present(
    job: Job, read: Published, now_s: float, start: Range | None, why: ReasonCode | None = None
) -> bytes:
    """The other part as bytes: the attempt, why the job waits, and all that changes with time.

    `start`: the range of its start. `why`: as for `job_message`.
    """
    cost_s = None if job.ended else read.stop_cost_s(job)
    waits = _waiting(why or read.wait_code(job, now_s), cost_s, start)
    if is_still(job):
        return waits
    message = job_pb2.Job()
    key = job.live_key
    attempt = read.attempt(key) if key is not None else None
    if key is not None:
        _add_run(message, job, attempt, read, now_s)
    if attempt is not None:
        _add_living(message, job, attempt, read, now_s)
    if job.blocked is not None and job.depends is not None:
        message.dependency = shown_dependency(job.depends, read.job)
    if job.steps:
        promised = promise_message(
            job,
            attempt,
            now_s,
            offered=read.promises,
            profile_s=read.profile_s,
            risk=read.risk(job.job_id),
            told_s=read.told_s(job.job_id),
            delay=read.delay(),
            policy=read.policy,
        )
        message.promise.CopyFrom(promised)
    if job.begin_time_s is not None and job.begin_time_s > now_s:
        message.begin_time.CopyFrom(to_timestamp(job.begin_time_s))
    return waits + message.SerializeToString()


def brief_message(job: Job) -> job_pb2.Job:
    """The facts about a new job for its sender."""
    return job_pb2.Job(
        job_id=str(job.job_id),
        user=job.user,
        name=job.name,
        queue=job.queue,
        state=JOB_STATES[job.state],
        array_task=_array_task_message(job),
    )


def redacted(job: Job, read: Published, now_s: float) -> job_pb2.Job:
    """All that users learn about other users' jobs (dlq.v1.Job.redacted)."""
    message = job_pb2.Job(
        redacted=True,
        job_id=str(job.job_id),
        user=job.user if read.others_shown == OTHERS[0] else "",
        state=JOB_STATES[job.state],
        submit_time=to_timestamp(job.submit_time_s),
        start_time=to_timestamp(job.first_start_time_s),
        array_task=_array_task_message(job, named=False),
        queue=job.queue,
        time_limit_duration=to_duration(job.time_limit_s),
    )
    if job.request.nodes is not None:
        message.resources.node_count = job.request.nodes
    message.resources.gpu_type = job.request.gpu_type or ""
    message.resources.gpu_count = job.request.real_gpus
    message.resources.core_count = job.request.cores
    executed_s = job.total_executed_s
    key = job.live_key
    attempt = read.attempt(key) if key is not None else None
    if attempt is not None:
        executed_s += attempt.executed_s(now_s)
        message.attempt_state = ATTEMPT_STATES[attempt.state]
        message.profiling = attempt.profiling
        message.node_ids.extend(attempt.lease.allocation.node_ids)
        _put_held(message, job.request, attempt.lease.allocation)
    _add_limit(message, job, attempt, now_s)
    message.run_duration.CopyFrom(to_duration(executed_s))
    return message


def is_still(job: Job) -> bool:
    """Whether its present part changes only with a plan, a forecast or stop costs, as for most
    waiting jobs.
    """
    return (
        job.live_attempt is None
        and job.blocked is None
        and job.begin_time_s is None
        and not job.steps
    )


@lru_cache(MOST_ALIKE)
def _waiting(code: ReasonCode | None, stop_cost_s: float | None, start: Range | None) -> bytes:
    """Why it waits, until when, and the cost of a stop; the same for many jobs."""
    message = job_pb2.Job(
        wait_code="" if code is None else code.value,
        stop_cost_duration=to_duration(stop_cost_s),
        start_estimate=None if start is None else range_message(start),
    )
    return message.SerializeToString()


def _add_run(
    message: job_pb2.Job, job: Job, attempt: Attempt | None, read: Published, now_s: float
) -> None:
    """Add its run time, its limit and its GPUs; from its row if no attempt is live."""
    if not job.ended:
        message.run_estimate.CopyFrom(estimate_message(job, attempt, read.profile_s))
    executed_s = job.total_executed_s
    if attempt is not None:
        executed_s += attempt.executed_s(now_s)
    message.run_duration.CopyFrom(to_duration(executed_s))
    _add_limit(message, job, attempt, now_s)
    add_elasticity(message, job, attempt)


def _add_limit(message: job_pb2.Job, job: Job, attempt: Attempt | None, now_s: float) -> None:
    left_s = limit_left_s(job, attempt, now_s)
    if left_s is None:
        return
    message.time_limit_scope = ATTEMPT_SCOPE if job.rules.limit_each else JOB_SCOPE
    if not job.ended:
        message.time_left_duration.CopyFrom(to_duration(max(0.0, left_s)))


def _add_living(
    message: job_pb2.Job, job: Job, attempt: Attempt, read: Published, now_s: float
) -> None:
    message.attempt_state = ATTEMPT_STATES[attempt.state]
    message.profiling = attempt.profiling
    _put_held(message, job.request, attempt.lease.allocation)
    service_gpu_s = job.request.weighed(attempt.lease.allocation.width) * attempt.executed_s(now_s)
    message.attained_gpu_seconds = job.attained_gpu_s + service_gpu_s
    message.gpu_seconds = job.total_gpu_s + service_gpu_s
    message.stop_cause = attempt.stop_cause.value if attempt.stop_cause is not None else ""
    if attempt.warned_time_s is not None:
        message.warning_time.CopyFrom(to_timestamp(attempt.warned_time_s))
    message.node_ids.extend(attempt.place.node_ids)
    first = read.node(attempt.place.slots[0].node_id)
    if first is not None:
        message.virtual_devices = first.virtual
        message.gpu_type = _shown_gpu_type(first, attempt.place)
    if attempt.suspension is not None:
        message.suspension.CopyFrom(suspension_message(attempt.suspension))
    if attempt.started_time_s is not None:
        message.work_at_risk_duration.CopyFrom(to_duration(work_at_risk_s(attempt, now_s)))
        add_stop_loss(message, job, attempt, now_s)
    told = read.activity(attempt.key)
    if told.idle or told.stall:
        message.activity.idle_reason, message.activity.stall_reason = told.idle, told.stall
    if told.straggler:
        message.activity.straggler_reason = told.straggler
    progress = read.progress(job.job_id)
    if progress is not None:
        message.progress.CopyFrom(
            job_pb2.Progress(
                step=progress.step,
                total_step_count=progress.total,
                loss=progress.loss,
                beat_time=to_timestamp(progress.time_s),
            )
        )


def add_figures(message: job_pb2.Job, attempt: Attempt, read: Published, now_s: float) -> None:
    """Add the figures of its activity, in an answer about this job only."""
    slots, activity = attempt.lease.allocation.slots, message.activity
    gpus = _all_known(
        read.figures(slot.node_id).get(gpu) for slot in slots for gpu in slot.gpu_indices
    )
    if means := _all_known(one.mean_utilization_percent for one in gpus):
        activity.utilization_percent = sum(means) / len(means)
    if idle := _all_known(one.idle_s for one in gpus):
        ran_s = now_s - (attempt.started_time_s or now_s)  # its GPUs may have been idle before
        activity.idle_duration.CopyFrom(to_duration(min(*idle, ran_s)))
    if watts := _all_known(one.power_watts for one in gpus):
        activity.power_watts = sum(watts)
    if memory := _all_known(one.used_memory_bytes for one in gpus):
        activity.gpu_memory_bytes = sum(memory)
    if clocks := _all_known(one.clock_mhz for one in gpus):
        activity.clock_mhz = min(clocks)  # one that is throttled holds up the others
    _add_uses(activity, attempt, read)


def _add_uses(activity: job_pb2.JobActivity, attempt: Attempt, read: Published) -> None:
    uses = [one for one in read.activity(attempt.key).uses.values() if one.span_s > 0.0]
    if len(uses) < len(attempt.ranks):
        return
    if cores := _all_known(_rate(one.cpu_s, one.span_s) for one in uses):
        activity.busy_cores = sum(cores)
    if memory := _all_known(one.memory_bytes for one in uses):
        activity.memory_bytes = sum(memory)
    if read_in := _all_known(_rate(one.read_bytes, one.span_s) for one in uses):
        activity.read_bytes_per_second = sum(read_in)
    if written := _all_known(_rate(one.written_bytes, one.span_s) for one in uses):
        activity.written_bytes_per_second = sum(written)


def _all_known(values: Iterable[T | None]) -> list[T]:
    """All of these values; empty if one is unknown."""
    found = list(values)
    known = [one for one in found if one is not None]
    return known if len(known) == len(found) else []


def _rate(amount: float | None, span_s: float) -> float | None:
    return None if amount is None else amount / span_s


def _put_held(message: job_pb2.Job, request: Request, allocation: Allocation) -> None:
    """Add the GPUs that it holds; for a job without GPUs, its cores."""
    if request.without_gpus:
        message.held_core_count = allocation.width
    else:
        message.held_gpu_count = allocation.width


def _shown_gpu_type(node: Node, allocation: Allocation) -> str:
    index = next(iter(allocation.slots[0].gpu_indices), None)
    gpu_type = next((gpu.gpu_type for gpu in node.gpus if gpu.index == index), "")
    return f"{gpu_type} (virtual)" if node.virtual and gpu_type else gpu_type


def _array_task_message(job: Job, *, named: bool = True) -> job_pb2.ArrayTask | None:
    """Its place in its array; None for a single job. `named`: with its member's name."""
    array = job.array
    if array is None:
        return None
    task = job_pb2.ArrayTask(
        array_id=str(array.array_id),
        index=job.array_index,
        task_count=array.tasks,
        concurrent_count=array.concurrent,
    )
    if array.members and named:
        member, task.member_index = array.member(job.array_index)
        task.member, task.ends = member.name, member.ends.value
    return task


def request_message(request: Request) -> resource_pb2.ResourceRequest:
    """The request of a job."""
    return resource_pb2.ResourceRequest(
        gpu_count=request.real_gpus,
        core_count=request.cores,
        core_memory_bytes=request.core_memory_bytes,
        node_count=request.nodes,
        gpu_type="" if request.without_gpus else request.gpu_type or "",
        or_gpu_types=request.or_gpu_types,
        cpu_limit=request.cpus_per_node,
        memory_limit_bytes=request.memory_bytes_per_node,
        gpu_memory_bytes=request.gpu_memory_bytes,
        halves_batch=request.halves_batch,
        mixed_gpu_types=request.mixed,
        constraint=named(request.constraint),
        node_ids=request.among,
        excluded_node_ids=request.not_among,
    )


def checkpoint_message(checkpoint: Checkpoint | None) -> job_pb2.Checkpoint | None:
    """A promoted checkpoint, if there is one."""
    if checkpoint is None:
        return None
    return filled(job_pb2.Checkpoint, checkpoint, commit_time=to_timestamp(checkpoint.time_s))
