"""The model as messages for users. `specs/intake.py` is the way back, `job_view.py` writes jobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from dlq.v1 import (
    admin_service_pb2,
    event_pb2,
    forecast_pb2,
    job_pb2,
    lease_pb2,
    node_pb2,
    resource_pb2,
)
from dlq_common.text.wire import filled, to_duration, to_timestamp
from dlq_master.control.nodes.labels import by_name
from dlq_master.control.read_model.published import Published
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankStatus, Suspension
from dlq_master.model.attempts.exit_zero import words as end_note
from dlq_master.model.event import Fact, JournalEvent
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import HoldKind, Job, JobState, RunRules
from dlq_master.model.lease import Lease, LeaseKind, hold_until_s
from dlq_master.model.nodes.node import Node, NodeState
from dlq_master.model.resources import indices
from dlq_master.model.why import Reason
from dlq_master.model.words.sentence import sentence
from dlq_master.planner.forecasts import Range
from dlq_master.rpc.views.node_view import gpu_statuses, reasons, straggler, withheld_words

if TYPE_CHECKING:
    from dlq_master.leader.lease import MasterPart

LEADS, STANDS_BY, ALONE = "leads", "stands_by", "alone"
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


def part_message(part: MasterPart, now_s: float) -> admin_service_pb2.MasterPart:
    """The part of a master among several."""
    fence, read_ago_s = part.fence, part.read_ago_s
    return admin_service_pb2.MasterPart(
        address=part.address,
        part=LEADS if part.leads else STANDS_BY,
        since_time=to_timestamp(now_s - part.held_s),
        leader=part.leader,
        epoch=fence.epoch,
        system=fence.system,
        timeline=fence.timeline,
        lease_left_duration=to_duration(max(0.0, part.left_s)),
        turn=part.turn,
        read_ago_duration=to_duration(read_ago_s if math.isfinite(read_ago_s) else None),
        reason=part.why,
        masters=part.masters,
    )


def range_message(range_: Range) -> forecast_pb2.TimeRange:
    """An estimated range; an instant beyond the forecast's horizon stays unset."""
    message = forecast_pb2.TimeRange()
    for field, at_s in (
        (message.earliest_time, range_.low_s),
        (message.likely_time, range_.likely_s),
        (message.latest_time, range_.high_s),
    ):
        if math.isfinite(at_s):
            field.CopyFrom(to_timestamp(at_s))
    return message


def attempt_message(attempt: Attempt, rules: RunRules, contact_s: float | None) -> job_pb2.Attempt:
    """One attempt of a job. `contact_s`: the last contact of its most silent node;
    None: unknown.
    """
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


def suspension_message(out: Suspension) -> job_pb2.Suspension:
    """An attempt that is suspended, or is moving."""
    return job_pb2.Suspension(
        phase=out.phase.value,
        since_time=to_timestamp(out.since_s),
        for_job_id="" if out.for_job is None else str(out.for_job),
        memory_bytes=out.memory_bytes,
        node_ids=out.allocation.node_ids,
        end_time=None if out.ends_s is None else to_timestamp(out.ends_s),
    )


def contact_of(attempt: Attempt, read: Published) -> float | None:
    """The last contact of the attempt's most silent node; None: one was never heard.

    An announced absence counts as contact.
    """
    contacts = [_heard_s(node_id, read) for node_id in attempt.place.node_ids]
    known = [contact_s for contact_s in contacts if contact_s is not None]
    return min(known) if known and len(known) == len(contacts) else None


def _heard_s(node_id: NodeId, read: Published) -> float | None:
    contact_s, node = read.contact_s(node_id), read.node(node_id)
    if contact_s is None or node is None:
        return contact_s
    return contact_s + node.maintenance_s


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
    """A lease. Its hold is an instant only if the last contact is known."""
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
        declared_gpu_speeds=_of_types(node, read.declared_speeds()),
        measured_gpu_speeds=_of_types(node, read.measured_speeds()),
        attempts=[str(key) for key in read.attempts_on(node.node_id)],
        root_jobs=node.root_jobs,
        version=node.version,
        withheld_gpu_indexes=indices(node.withheld),
        withheld_reason=withheld_words(node),
        gpu_statuses=gpu_statuses(node, read),
        reasons=reasons(node, read),
        straggler=straggler(node, read),
        labels=by_name(node),
        pool=node.pool.value,
        maintenance_end_time=to_timestamp(node.maintenance_end_s),
        contact_time=to_timestamp(read.contact_s(node.node_id)),
    )


def _of_types(node: Node, speeds: Mapping[str, float]) -> dict[str, float]:
    """Those of the types that the node has."""
    return {gpu_type: speeds[gpu_type] for gpu_type in node.masks() if gpu_type in speeds}


def reason_messages(
    reasons: Iterable[Reason], job: Job, reader: str
) -> Iterator[job_pb2.WaitReason]:
    """Why a job does not run, in words for this reader; empty once it has ended."""
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
    """One event of the journal. Without `names` it does not tell for whose job another one left its
    GPUs.
    """
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
