"""Attempts that leave their GPUs without a save, and come back (model/attempts/suspending.py).

The order to each rank has a number, the fence of its launch, and a row in the outbox. It reaches
its node once that answers. An answer counts only with the number of the last order. The GPUs
are the attempt's until all its ranks have said that they stand still and that their GPUs are proven
free. From the order to come back on they are its own again, before any rank moves.

When an agent restarts, it goes on with the move, and says the rest. When the master restarts, the
attempt, its number and the orders on their way are on disk. While a node is silent the attempt is
UNKNOWN and stays where it is. No limit of time runs then, nor while there is no master: each counts
anew once all its nodes are heard. A node that comes back with another boot has lost it, as any
other. A rank that refuses brings all of them back, and the attempt saves and leaves as it would
have otherwise. One that cannot come back ends all of them, and the job goes on from its last
checkpoint. Where a person wants it off its GPUs, it is held then, as by a pause.

On its own GPUs an attempt that is out comes before all that stand behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlq_common.text.units import format_duration
from dlq_master.control.loop.turn import Turn
from dlq_master.model.attempts import suspending
from dlq_master.model.attempts.attempt import Attempt, AttemptState, SuspensionPhase
from dlq_master.model.attempts.attempt_steps import (
    ResumeAsked,
    StopRequested,
    Suspended,
    SuspendRefused,
    Unsuspended,
)
from dlq_master.model.attempts.grace import stop_grace_s
from dlq_master.model.attempts.suspending import Next, SuspendRules
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import HoldKind
from dlq_master.model.lease import first_term_end_s
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Allocation
from dlq_master.model.transitions import StopCause


def heard(turn: Turn, key: AttemptKey) -> None:
    """A report of a rank may end a move. Does nothing where no order is open."""
    attempt = turn.state.cluster.attempts.get(key)
    if attempt is None or attempt.suspension is None or attempt.state is not AttemptState.SUSPENDED:
        return
    phase = attempt.suspension.phase
    if phase is SuspensionPhase.LEAVING:
        if why := suspending.failure(attempt):
            _refused(turn, attempt, why)
        elif suspending.all_are(attempt, "suspended"):
            _measure(turn, attempt)
            took_s = round(turn.now_s - attempt.suspension.since_s, 3)
            turn.step_attempt(key, Suspended(), actor="master", cause=f"within {took_s:g} s")
    elif phase is SuspensionPhase.COMING:
        if why := suspending.failure(attempt):
            throw_back(turn, attempt, why)
        elif suspending.all_are(attempt, "running"):
            turn.step_attempt(key, Unsuspended(), actor="master")


def settle(turn: Turn, *, planned: bool) -> None:
    """Attempts that are out come back, or are thrown back to their last checkpoints. Before a plan
    only those that stand before all waiting jobs come back; after one, those whose GPUs are left.
    """
    known, unheard = turn.state.attempts.suspended, turn.state.attempts.unheard
    for key in sorted(known):
        attempt = turn.state.cluster.attempts.get(key)
        if attempt is None or attempt.suspension is None:
            known.discard(key)
            unheard.pop(key, None)
        elif not _heard_from(turn, attempt):
            unheard[key] = turn.now_s
        elif planned or turn.state.cluster.stands_first(turn.job(key.job_id)):
            _settle(turn, attempt)


def throw_back(turn: Turn, attempt: Attempt, why: str) -> None:
    """It ends, and its job waits again. It is held if a person still wants it off its GPUs."""
    out, job = attempt.suspension, turn.job(attempt.key.job_id)
    by_person = out is not None and out.for_job is None
    if out is not None and by_person and not out.wanted_back and job.hold is None:
        held = on_job.Held(kind=HoldKind.PAUSED, reason=why)
        turn.step_job(job.job_id, held, actor="master", cause=why)
    paused = by_person and turn.job(job.job_id).hold is not None
    cause = StopCause.PAUSE if paused else StopCause.PREEMPT
    stop = StopRequested(cause=cause, grace_s=0.0, detail=f"not suspended any longer: {why}")
    turn.step_attempt(attempt.key, stop, actor="master", cause=why)


# --- helpers, in order of use ---------------------------------------------------------------------


def _measure(turn: Turn, attempt: Attempt) -> None:
    for status in attempt.ranks:
        if (move := status.move) is not None:
            costs = turn.state.cluster.move_costs
            costs.measured(status.node_id, move.memory_bytes, move.took_s)


def _refused(turn: Turn, attempt: Attempt, why: str) -> None:
    """All run on. Where it left for a job, it saves and leaves as it would have."""
    out = attempt.suspension
    assert out is not None
    if suspending.is_stranded(attempt):
        throw_back(turn, attempt, why)
        return
    turn.step_attempt(attempt.key, SuspendRefused(detail=why), actor="master", cause=why)
    if out.for_job is not None:
        job = turn.job(attempt.key.job_id)
        running = turn.state.cluster.attempts[attempt.key]
        grace_s = stop_grace_s(running, job)
        detail = f"for job {out.for_job}"
        stop = StopRequested(cause=StopCause.PREEMPT, grace_s=grace_s, detail=detail)
        turn.step_attempt(attempt.key, stop, actor="master", cause=f"not suspended: {why}")


def _settle(turn: Turn, attempt: Attempt) -> None:
    out = attempt.suspension
    assert out is not None
    rules = turn.state.config.suspend.rules()
    if attempt.state is AttemptState.SUSPENDED and out.phase is not SuspensionPhase.OUT:
        late_s = turn.now_s - max(out.since_s, _heard_since_s(turn, attempt))
        if late_s >= rules.move_s:
            _late(turn, attempt, rules)
        return
    step, why = suspending.next_step(
        attempt,
        _nodes(turn, out.allocation),
        guest_waits=_waits(turn, out.for_job),
        gpus_free=_are_free(turn, out.allocation),
        now_s=turn.now_s,
        rules=rules,
        heard_s=_heard_since_s(turn, attempt),
    )
    if step is Next.RESUME:
        cluster, kind = turn.state.cluster, attempt.lease.kind
        lead_s = cluster.saves.lead_s
        end_s = first_term_end_s(turn.now_s, kind, cluster.terms, lead_s)
        turn.step_attempt(attempt.key, ResumeAsked(term_end_s=end_s), actor="master")
    elif step is Next.THROW_BACK:
        throw_back(turn, attempt, why)


def _heard_from(turn: Turn, attempt: Attempt) -> bool:
    """Whether this master knows what became of it in a silence, or without a master."""
    greeted = turn.state.nodes.greeted
    silent = attempt.state is AttemptState.UNKNOWN
    return not silent and all(rank.gone or rank.node_id in greeted for rank in attempt.ranks)


def _heard_since_s(turn: Turn, attempt: Attempt) -> float:
    """Since when its nodes could have answered, and its guest could have left."""
    return max(turn.state.started_s, turn.state.attempts.unheard.get(attempt.key, 0.0))


def _late(turn: Turn, attempt: Attempt, rules: SuspendRules) -> None:
    out = attempt.suspension
    assert out is not None
    why = f"its agents have not answered within {format_duration(rules.move_s)}"
    if out.phase is SuspensionPhase.LEAVING:
        _refused(turn, attempt, why)
    else:
        throw_back(turn, attempt, why)


def _nodes(turn: Turn, allocation: Allocation) -> Iterator[Node]:
    nodes = turn.state.cluster.nodes
    return (nodes[node_id] for node_id in allocation.node_ids if node_id in nodes)


def _waits(turn: Turn, job_id: JobId | None) -> bool:
    """Whether the job that it left for has yet to start."""
    job = None if job_id is None else turn.known_job(job_id)
    return job is not None and job.waiting


def _are_free(turn: Turn, allocation: Allocation) -> bool:
    """Whether nobody has these GPUs, and their nodes may be used."""
    cluster = turn.state.cluster
    capacity = cluster.capacity
    for node_id, mask in allocation.slots:
        node = cluster.nodes.get(node_id)
        if node is None or not node.takes_work or node.withheld & mask:
            return False
        if capacity.claimed(node_id) & mask:
            return False
    return True
