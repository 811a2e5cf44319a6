"""Resizes of a job that runs on: whole ranks join it or leave it, and its launcher restarts the
workers.

torchrun's elastic rendezvous does the work (docs/using/elastic-live.md): a rank is one torchrun
with all GPUs that the job has on a node. Rank 0 hosts the rendezvous, so it stays. GPUs belong
to the attempt from when a rank is to join until it is proven gone. Everything here is a rule about
values; `control/attempts/live_resizes.py` drives it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf

from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankPhase, RankStatus
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.lease import LeaseKind
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Allocation

# After these the next one is by a restart: torchrun starts workers again only so often.
RESIZES_PER_ATTEMPT = 8

# A rank that fails so soon after it joined has not joined: the others go on without it.
PROBATION_S = 300.0
# For so long the attempt does not go there again: each try costs all of them a restart of their
# workers.
SHUNNED_S = 3600.0


def known_on(nodes: Iterable[Node]) -> bool:
    return all(node.resizes_live for node in nodes)


def obstacle(attempt: Attempt, job: Job, then: Allocation, nodes: Iterable[Node]) -> str:
    """Why the job cannot be resized to these GPUs while it runs, in words; empty: it can."""
    held = attempt.lease.allocation
    if attempt.state is not AttemptState.RUNNING or attempt.stop_cause is not None:
        return "it does not run"
    if attempt.lease.kind is LeaseKind.PROFILE or job.state is not JobState.QUEUED:
        return "it is being measured, or held"
    if attempt.resize is not None:
        return "it is being resized already"
    if attempt.resizes >= RESIZES_PER_ATTEMPT:
        return f"torchrun has restarted its workers for {attempt.resizes} resizes"
    if any(status.gone and not status.left for status in attempt.ranks):
        return "a rank of it has ended"
    if (held - then).slots and (then - held).slots:
        return "it would get other GPUs, not only more or fewer"
    if not _whole(held, then):
        return "these are no whole ranks of it"
    if attempt.ranks[0].node_id not in then.node_ids:
        return "the node with its rendezvous would leave"
    if attempt.fixed or not known_on(nodes):
        return "an agent of it is too old for that"
    return "" if port(attempt) else "the port of its rendezvous is not known"


def port(attempt: Attempt) -> int:
    """Where its rank 0 hosts the rendezvous, as its agent has told; 0: it has not."""
    return next(iter(attempt.ranks[0].ports), 0)


def begun(attempt: Attempt, then: Allocation) -> Attempt:
    """Ranks for what is new in these GPUs are to join, those of what is missing to leave."""
    held = attempt.lease.allocation
    new = (then - held).slots
    ranks = told_to_leave(attempt, (held - then).node_ids).ranks
    joining = tuple([RankStatus(slot.node_id, joining=True) for slot in new])
    after = attempt._replace(ranks=ranks + joining)
    return _with(after, Allocation(held.slots + new)) if new else after


def told_to_leave(attempt: Attempt, node_ids: Collection[NodeId]) -> Attempt:
    """The ranks on these nodes leave, whether or not they had joined."""
    ranks = tuple(
        status._replace(leaving=True, joining=False)
        if status.node_id in node_ids and not status.gone
        else status
        for status in attempt.ranks
    )
    return attempt._replace(ranks=ranks)


def settled(attempt: Attempt) -> Attempt:
    """Without the GPUs of those that have left, and with all others joined."""
    ranks = tuple(status._replace(joining=False) for status in attempt.ranks)
    after, gone = attempt._replace(ranks=ranks), attempt.leaves
    return _with(after, attempt.lease.allocation - gone) if gone.slots else after


def heard(before: RankStatus, status: RankStatus, now_s: float) -> RankStatus:
    """A report of a rank that joins or leaves. Its end is never that of the attempt."""
    if status.gone and (before.leaving or before.joining or _on_probation(before, status)):
        return RankStatus(
            status.node_id,
            RankPhase.EXITED,
            exit_code=0,
            words=status.start_error or status.words,
            exited_time_s=status.exited_time_s,
            lost=status.lost,
            leaving=True,
            joined_time_s=before.joined_time_s,
            unfit=not before.leaving and _own_fault(status),
        )
    runs = before.joining and status.phase is RankPhase.RUNNING
    return status._replace(
        joining=before.joining,
        leaving=before.leaving,
        joined_time_s=now_s if runs and before.joined_time_s is None else before.joined_time_s,
    )


def too_many(attempt: Attempt, sizes: tuple[int, ...]) -> tuple[NodeId, ...]:
    """Nodes to be left too, so that the rest is one of its sizes: the last to join."""
    staying = [status for status in attempt.ranks if not status.leaving]
    slots = {slot.node_id: slot.mask.bit_count() for slot in attempt.lease.allocation.slots}
    width = sum(slots.get(status.node_id, 0) for status in staying)
    found: list[NodeId] = []
    while width not in sizes and len(staying) > 1:
        last = staying.pop()
        width -= slots.get(last.node_id, 0)
        found.append(last.node_id)
    return tuple(found)


def is_settled(attempt: Attempt) -> bool:
    """All joining ranks run, and all leaving ranks have gone."""
    return not any(
        (status.joining and status.phase is not RankPhase.RUNNING)
        or (status.leaving and not status.gone)
        for status in attempt.ranks
    )


def lost_some(attempt: Attempt) -> bool:
    """Whether it has GPUs of a rank that has left."""
    held = attempt.lease.allocation.node_ids
    here = {status.node_id for status in attempt.ranks if not status.left}
    return any(node_id not in here for node_id in held)


def shunned(attempt: Attempt, now_s: float) -> tuple[NodeId, ...]:
    """Nodes on which a rank was to join and failed not long ago."""
    since_s = now_s - SHUNNED_S
    failed = [it for it in attempt.ranks if it.unfit and (it.exited_time_s or 0.0) > since_s]
    return tuple(dict.fromkeys(status.node_id for status in failed))


def spoiled_by(attempt: Attempt) -> tuple[NodeId, ...]:
    """Nodes that have failed this attempt: a rank that had just joined there failed by itself, and
    before the others.

    They cannot go on. A torchrun that gives up closes the rendezvous for good. Workers that wait
    for those of a killed one wait as long as their process group does (half an hour by default).
    """
    ended_s = [it.exited_time_s for it in attempt.ranks if it.failed]
    first_s = min((at_s for at_s in ended_s if at_s is not None), default=inf)
    return tuple(
        status.node_id
        for status in attempt.ranks
        if status.unfit and status.joined and (status.exited_time_s or 0.0) < first_s
    )


def members_gone(attempt: Attempt) -> bool:
    """Only ranks that were to join or to leave are left, and they are there for nobody."""
    members = [it for it in attempt.ranks if not it.joining and not it.leaving]
    return all(it.gone for it in members) and not all(it.gone for it in attempt.ranks)


def _on_probation(before: RankStatus, status: RankStatus) -> bool:
    joined_s, ended_s = before.joined_time_s, status.exited_time_s
    if joined_s is None or ended_s is None or not status.failed or status.hold_expired:
        return False
    return ended_s < joined_s + PROBATION_S


def _own_fault(status: RankStatus) -> bool:
    """Not because its node was lost."""
    return status.failed and not status.lost


def _whole(held: Allocation, then: Allocation) -> bool:
    """Whether only whole nodes come or go, each with as many GPUs of it as rank 0 has."""
    each = held.slots[0].mask.bit_count()
    before = dict(held.slots)
    return all(
        slot.mask == before.get(slot.node_id, slot.mask) and slot.mask.bit_count() == each
        for slot in then.slots
    )


def _with(attempt: Attempt, allocation: Allocation) -> Attempt:
    return attempt._replace(lease=attempt.lease._replace(allocation=allocation))
