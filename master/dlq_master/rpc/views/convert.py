"""Where the model becomes messages for users: the way back is intake.py. For agents:
commands.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from dlq.v1 import event_pb2, forecast_pb2, job_pb2, lease_pb2, node_pb2, resource_pb2
from dlq_common.job_fields.reading.words import ATTEMPT_SCOPE, JOB_SCOPE
from dlq_common.text.wire import filled, to_duration, to_timestamp
from dlq_master.control.nodes.labels import by_name, named
from dlq_master.control.read_model.published import Published
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankStatus
from dlq_master.model.attempts.exit_zero import words as end_note
from dlq_master.model.attempts.grace import grace_s, limit_left_s
from dlq_master.model.event import Fact, JournalEvent
from dlq_master.model.jobs.job import Checkpoint, HoldKind, Job, JobState, RunRules
from dlq_master.model.jobs.naming import shown_dependency
from dlq_master.model.lease import Lease, LeaseKind, hold_until_s
from dlq_master.model.nodes.node import Node, NodeState
from dlq_master.model.resources import Allocation, Request, indices
from dlq_master.model.why import Reason
from dlq_master.model.words.sentence import sentence
from dlq_master.planner.forecasts import Range
from dlq_master.rpc.specs.deadlines import promise_message
from dlq_master.rpc.specs.elastic import add_elasticity
from dlq_master.rpc.views.node_view import gpu_statuses, reasons, withheld_words
from dlq_master.rpc.views.preemption_view import add_preemptions, add_stop_loss, estimate_message

JOB_STATES = {state: job_pb2.JobState.Value(f"JOB_STATE_{state.name}") for state in JobState}
HOLD_KINDS = {kind: job_pb2.HoldKind.Value(f"HOLD_KIND_{kind.name}") for kind in HoldKind}
ATTEMPT_STATES = {
    state: job_pb2.AttemptState.Value(f"ATTEMPT_STATE_{state.name}") for state in AttemptState
}
NODE_STATES = {state: node_pb2.NodeState.Value(f"NODE_STATE_{state.name}") for state in NodeState}
LEASE_KINDS = {kind: lease_pb2.LeaseKind.Value(f"LEASE_KIND_{kind.name}") for kind in LeaseKind}
# The users' words for the words of the core.
RANK_WORDS = {
    "assigned": "waiting",
    "preparing": "preparing",
    "starting": "ready",
    "running": "started",
    "exited": "exited",
}


def range_message(range_: Range) -> forecast_pb2.TimeRange:
    """An estimated instant; one beyond the forecast's range stays unset."""
    message = forecast_pb2.TimeRange()
    for field, at_s in (
        (message.earliest_time, range_.low_s),
        (message.likely_time, range_.likely_s),
        (message.latest_time, range_.high_s),
    ):
        if math.isfinite(at_s):
            field.CopyFrom(to_timestamp(at_s))
    return message


def job_message(job: Job, read: Published, now_s: float) -> job_pb2.Job:
    """A job as its owner sees it at `now_s`, with what is known of its living attempt."""
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
        array_task=array_task_message(job),
    )
    key = job.live_key
    attempt = read.attempt(key) if key is not None else None
    if not job.ended:
        message.grace_duration.CopyFrom(to_duration(grace_s(job.saves, job.rules)))
        message.observed_save_count = len(job.saves)
        message.run_estimate.CopyFrom(estimate_message(job, attempt, read.profile_s))
    executed_s = job.total_executed_s
    if attempt is not None:
        executed_s += attempt.executed_s(now_s)
        _add_living(message, job, attempt, read, now_s)
    message.run_duration.CopyFrom(to_duration(executed_s))
    add_limit(message, job, attempt, now_s)
    if job.begin_time_s is not None and job.begin_time_s > now_s:
        message.begin_time.CopyFrom(to_timestamp(job.begin_time_s))
    add_elasticity(message, job, attempt)
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
    add_preemptions(message, job, read)
    _add_waiting(message, job, read, now_s)
    return message


def add_limit(message: job_pb2.Job, job: Job, attempt: Attempt | None, now_s: float) -> None:
    left_s = limit_left_s(job, attempt, now_s)
    if left_s is None:
        return
    message.time_limit_scope = ATTEMPT_SCOPE if job.rules.limit_each else JOB_SCOPE
    if not job.ended:
        message.time_left_duration.CopyFrom(to_duration(max(0.0, left_s)))


def _add_waiting(message: job_pb2.Job, job: Job, read: Published, now_s: float) -> None:
    code, start = read.wait_code(job, now_s), read.start_range(job)
    if code is not None:
        message.wait_code = code.value
    if start is not None:
        message.start_estimate.CopyFrom(range_message(start))


def _add_living(
    message: job_pb2.Job, job: Job, attempt: Attempt, read: Published, now_s: float
) -> None:
    message.attempt_state = ATTEMPT_STATES[attempt.state]
    message.profiling = attempt.profiling
    put_held(message, job.request, attempt.lease.allocation)
    service_gpu_s = job.request.weighed(attempt.lease.allocation.width) * attempt.executed_s(now_s)
    message.attained_gpu_seconds += service_gpu_s
    message.gpu_seconds += service_gpu_s
    message.stop_cause = attempt.stop_cause.value if attempt.stop_cause is not None else ""
    if attempt.warned_time_s is not None:
        message.warning_time.CopyFrom(to_timestamp(attempt.warned_time_s))
    message.node_ids.extend(attempt.lease.allocation.node_ids)
    first = read.node(attempt.lease.allocation.slots[0].node_id)
    if first is not None:
        message.virtual_devices = first.virtual
        message.gpu_type = _shown_gpu_type(first, attempt.lease.allocation)
    if attempt.started_time_s is not None:
        saved_s = max(
            attempt.started_time_s, attempt.checkpoint.time_s if attempt.checkpoint else 0
        )
        message.work_at_risk_duration.CopyFrom(to_duration(max(0.0, now_s - saved_s)))
        add_stop_loss(message, job, attempt, now_s)
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


def put_held(message: job_pb2.Job, request: Request, allocation: Allocation) -> None:
    """The GPUs that it holds; of a job without GPUs, its cores."""
    if request.without_gpus:
        message.held_core_count = allocation.width
    else:
        message.held_gpu_count = allocation.width


def _shown_gpu_type(node: Node, allocation: Allocation) -> str:
    index = next(iter(allocation.slots[0].gpu_indices), None)
    gpu_type = next((gpu.gpu_type for gpu in node.gpus if gpu.index == index), "")
    return f"{gpu_type} (virtual)" if node.virtual and gpu_type else gpu_type


def array_task_message(job: Job) -> job_pb2.ArrayTask | None:
    """Its place in its array; None for a single job."""
    array = job.array
    return array and job_pb2.ArrayTask(
        array_id=str(array.array_id),
        index=job.array_index,
        task_count=array.tasks,
        concurrent_count=array.concurrent,
    )


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


def attempt_message(attempt: Attempt, rules: RunRules, contact_s: float | None) -> job_pb2.Attempt:
    """One try of a job; `contact_s` is the last word of its most silent node, None: unknown."""
    return job_pb2.Attempt(
        job_id=str(attempt.key.job_id),
        attempt=attempt.key.number,
        fence=lease_pb2.Fence(epoch=attempt.epoch, attempt=attempt.key.number),
        state=ATTEMPT_STATES[attempt.state],
        stop_cause=attempt.stop_cause.value if attempt.stop_cause is not None else "",
        lease=lease_message(attempt.lease, contact_s if attempt.live else None),
        ranks=[rank_message(rank, status) for rank, status in enumerate(attempt.ranks)],
        assign_time=to_timestamp(attempt.assigned_time_s),
        first_failed_rank=attempt.first_failed_rank,
        start_time=to_timestamp(attempt.started_time_s),
        end_time=to_timestamp(attempt.ended_time_s),
        grace_duration=to_duration(attempt.grace_s),
        end_note="" if attempt.live else end_note(attempt, rules),
    )


def rank_message(rank: int, status: RankStatus) -> job_pb2.Rank:
    """One node's part of an attempt."""
    return filled(
        job_pb2.Rank,
        status,
        node_rank=rank,
        phase=RANK_WORDS[status.phase.value],
        error=status.start_error or status.words,
    )


def lease_message(lease: Lease, contact_s: float | None) -> lease_pb2.Lease:
    """A lease; its hold is an instant only while the last contact is known."""
    hold_s = None if contact_s is None else hold_until_s(contact_s, lease.hold_s)
    return lease_pb2.Lease(
        kind=LEASE_KINDS[lease.kind],
        allocation=resource_pb2.Allocation(
            slots=[
                resource_pb2.AllocationSlot(
                    node_id=slot.node_id,
                    gpu_indexes=slot.gpu_indices,
                    core_indexes=slot.core_indices,
                )
                for slot in lease.allocation.slots
            ]
        ),
        term_end_time=to_timestamp(lease.term_end_s),
        hold_until_time=to_timestamp(hold_s),
    )


def node_message(node: Node, read: Published) -> node_pb2.Node:
    """A node as the cluster sees it."""
    return node_pb2.Node(
        node_id=node.node_id,
        hostname=node.hostname,
        state=NODE_STATES[node.state],
        flags=sorted(flag.value for flag in node.flags),
        flag_reason=node.flag_reason,
        gpus=[filled(resource_pb2.Gpu, gpu) for gpu in node.gpus],
        virtual_devices=node.virtual,
        cpu_count=node.cpu_count,
        memory_bytes=node.memory_bytes,
        boot_id=node.boot_id,
        agent_version=node.agent_version,
        free_gpu_count=read.free_gpu_count(node.node_id),
        job_core_count=node.cores,
        free_core_count=read.free_core_count(node.node_id) if node.cores else 0,
        core_memory_bytes=node.core_memory_bytes,
        attempts=[str(key) for key in read.attempts_on(node.node_id)],
        root_jobs=node.root_jobs,
        version=node.version,
        withheld_gpu_indexes=indices(node.withheld),
        withheld_reason=withheld_words(node),
        gpu_statuses=gpu_statuses(node, read),
        reasons=reasons(node, read),
        labels=by_name(node),
        pool=node.pool.value,
        maintenance_end_time=to_timestamp(node.maintenance_end_s),
        contact_time=to_timestamp(read.contact_s(node.node_id)),
    )


def reason_messages(
    reasons: Iterable[Reason], job: Job, reader: str
) -> Iterator[job_pb2.WaitReason]:
    """Why a job does not run, in the words for this reader; nothing once it has ended."""
    for reason in () if job.ended else reasons:
        yield job_pb2.WaitReason(
            code=reason.code.value,
            resource=reason.resource,
            need=reason.need,
            have=reason.have,
            blocking_job_ids=map(str, reason.blocking_jobs),
            detail=sentence(reason, job, reader),
            subject=reason.subject,
        )


def event_message(event: JournalEvent, *, names: bool = True) -> event_pb2.Event:
    """One entry of the journal; without `names` not for whose job one left its GPUs."""
    return event_pb2.Event(
        sequence=event.seq,
        event_time=to_timestamp(event.time_s),
        kind=event.kind,
        job_id="" if event.job_id is None else str(event.job_id),
        attempt=event.attempt or 0,
        node_id=event.node_id or "",
        cause=event.cause,
        actor=event.actor,
        data={
            key: _fact_text(value)
            for key, value in event.data.items()
            if names or key != "user" or "for_job" not in event.data
        },
    )


def _fact_text(fact: Fact) -> str:
    if fact is None:
        return ""
    return str(fact).lower() if isinstance(fact, bool) else str(fact)
