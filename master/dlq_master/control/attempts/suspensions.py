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
have otherwise. So it does where the move takes too long, once its ranks are back. One that cannot
come back ends all of them, and the job goes on from its last checkpoint. So does one that is not
back within the longest time of a move after a refusal. Where a promised job needs the GPUs, all of
that has no more time than a save would have had.

Where its node is emptied, it comes back as soon as its GPUs are free, saves, and leaves. They are
waited for as long as the job may take to save. Where a person wants it off its GPUs, it is held
however its attempt ends, as by a pause.

On its own GPUs an attempt that is out comes before all that rank below it: no plan gives them away
(policy/order/suspended.py). Where others have them, it comes back to free ones of the same types on
the same nodes, if its agents say that it may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlq_common.text.units import format_duration
from dlq_master.control.loop.turn import Turn
from dlq_master.model.attempts import suspending
from dlq_master.model.attempts.attempt import (
    Attempt,
    AttemptState,
    Suspension,
    SuspensionPhase,
)
from dlq_master.model.attempts.attempt_steps import (
    ResumeAsked,
    StopRequested,
    Suspended,
    SuspendRefused,
    Unsuspended,
)
from dlq_master.model.attempts.grace import stop_grace_s
from dlq_master.model.attempts.suspending import Next
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import HoldKind
from dlq_master.model.lease import first_term_end_s
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Allocation
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.policy import pipeline

_STRANDED = "a rank of it cannot be brought back"
# A way back only to save may take so many times the longest move: the way there ends first.
SLOW_WAY_BACK = 3


def heard(turn: Turn, key: AttemptKey) -> None:
    """A report of a rank may end a move. Does nothing where no order is open."""
    attempt = turn.state.cluster.attempts.get(key)
    if attempt is None:
        return
    if attempt.state is AttemptState.RUNNING and suspending.is_stranded(attempt):
        throw_back(turn, attempt, suspending.failure(attempt) or _STRANDED)
    if attempt.suspension is None or attempt.state is not AttemptState.SUSPENDED:
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
            _stood_still(turn, attempt)
            _leave_again(turn, attempt)


def settle(turn: Turn, *, planned: bool) -> None:
    """Attempts that are out come back, or are thrown back to their last checkpoints. They come back
    after a plan. Until then jobs that rank above them may take their GPUs.
    """
    known, unheard = turn.state.attempts.suspended, turn.state.attempts.unheard
    above: dict[NodeId, int] = {}  # masks of the GPUs to which attempts that rank above come back
    for key in _in_order(turn) if planned else sorted(known):
        attempt = turn.state.cluster.attempts.get(key)
        if attempt is None or not suspending.is_open(attempt):
            known.discard(key)
            unheard.pop(key, None)
        elif not _heard_from(turn, attempt):
            unheard[key] = turn.now_s
        elif attempt.suspension is None:
            _await_return(turn, attempt)
        else:
            _settle(turn, attempt, above, planned=planned)
            after = turn.state.cluster.attempts.get(key)
            if planned and after is not None:
                suspending.add_kept(after, above)


def throw_back(turn: Turn, attempt: Attempt, why: str) -> None:
    """It ends, and its job waits again. It is held if a person still wants it off its GPUs."""
    out, job = attempt.suspension, turn.job(attempt.key.job_id)
    by_person = out is not None and out.for_job is None
    if out is not None and by_person and not out.wanted_back and job.hold is None:
        held = on_job.Held(kind=HoldKind.PAUSED, reason=why)
        turn.step_job(job.job_id, held, actor="master", cause=why)
    paused = by_person and turn.job(job.job_id).hold is not None
    cause = StopCause.PAUSE if paused else StopCause.PREEMPT
    words = "not suspended any longer" if out is not None else "it did not leave its GPUs"
    stop = StopRequested(cause=cause, grace_s=0.0, detail=f"{words}: {why}")
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
    if suspending.emptied(_nodes(turn, out.allocation)) is not None:
        # Ranks that have left come back first: a stop would kill them, and nothing be saved.
        _come_back(turn, attempt, to_save=True, why=why)
        return
    turn.step_attempt(attempt.key, SuspendRefused(detail=why), actor="master", cause=why)
    turn.state.attempts.unheard[attempt.key] = turn.now_s
    if out.for_job is not None:
        _make_way(turn, attempt, out.for_job, f"not suspended: {why}")


def _make_way(turn: Turn, attempt: Attempt, for_job: JobId, why: str) -> None:
    """It runs, and saves and leaves for a job."""
    running = turn.state.cluster.attempts[attempt.key]
    grace_s = stop_grace_s(running, turn.job(attempt.key.job_id))
    if attempt.suspension is not None and attempt.suspension.until_s is not None:
        grace_s = min(grace_s, max(0.0, attempt.suspension.until_s - turn.now_s))
    stop = StopRequested(cause=StopCause.PREEMPT, grace_s=grace_s, detail=f"for job {for_job}")
    turn.step_attempt(attempt.key, stop, actor="master", cause=why)


def _stood_still(turn: Turn, attempt: Attempt) -> None:
    """The time off its GPUs is no time without a step: neither a stall, nor a slow step."""
    out, job_id = attempt.suspension, attempt.key.job_id
    if out is None or out.out_s is None:
        return
    off_s = turn.now_s - out.out_s
    paces, tracks = turn.state.attempts.stalls.paces, turn.state.trials.tracks
    if (pace := paces.get(job_id)) is not None:
        paces[job_id] = pace._replace(since_s=pace.since_s + off_s, silent_s=0.0)
    if (track := tracks.get(job_id)) is not None and track.attempt == attempt.key.number:
        later = tuple(it._replace(time_s=it.time_s + off_s) for it in track.samples)
        tracks[job_id] = track._replace(first_s=track.first_s + off_s, samples=later)


def _leave_again(turn: Turn, attempt: Attempt) -> None:
    """It is back, perhaps only to save."""
    out, job = attempt.suspension, turn.job(attempt.key.job_id)
    assert out is not None
    if suspending.stays_paused(out):
        if job.hold is None:
            held = on_job.Held(kind=HoldKind.PAUSED, reason=f"suspended {out.why}")
            turn.step_job(job.job_id, held, actor="master")
        else:
            turn.stop(attempt.key, StopCause.PAUSE, actor="master")
    elif suspending.emptied(_nodes(turn, out.allocation)) is not None:
        turn.stop(attempt.key, StopCause.DRAIN, actor="master")
    elif out.to_save and suspending.guest_waits(turn.state.cluster.jobs, out.for_job):
        assert out.for_job is not None
        _make_way(turn, attempt, out.for_job, "its GPU memory moved too slowly")


def _in_order(turn: Turn) -> list[AttemptKey]:
    view = View(turn.state.cluster, turn.now_s)
    return pipeline.returning(view, turn.state.policy, turn.state.attempts.suspended)


def _settle(turn: Turn, attempt: Attempt, above: Mapping[NodeId, int], *, planned: bool) -> None:
    out = attempt.suspension
    assert out is not None
    if attempt.state is AttemptState.SUSPENDED and out.phase is not SuspensionPhase.OUT:
        _settle_move(turn, attempt, out)
        return
    cluster, place = turn.state.cluster, _place(turn, attempt, out.allocation, above)
    step, why = suspending.next_step(
        attempt,
        [*_nodes(turn, out.allocation)],
        guest_waits=suspending.guest_waits(cluster.jobs, out.for_job),
        others_leave=suspending.others_leave(cluster.attempts, cluster.claims, out.for_job),
        gpus_free=place is not None,
        now_s=turn.now_s,
        rules=turn.state.config.suspend.rules(),
        heard_s=_heard_since_s(turn, attempt),
        grace_s=turn.job(attempt.key.job_id).rules.grace_cap_s,
    )
    if step is Next.RESUME and not planned:
        turn.plan_due = True
    elif step is Next.RESUME:
        _come_back(turn, attempt, onto=place)
    elif step is Next.SAVE:
        _come_back(turn, attempt, onto=place, to_save=True, why=why)
    elif step is Next.THROW_BACK:
        throw_back(turn, attempt, why)


def _settle_move(turn: Turn, attempt: Attempt, out: Suspension) -> None:
    """A move that takes too long, or is of no use any more."""
    leaving = out.phase is SuspensionPhase.LEAVING
    node = suspending.emptied(_nodes(turn, out.allocation)) if leaving else None
    if node is not None:
        why = f"node {node.node_id} is being emptied"
        _come_back(turn, attempt, to_save=True, why=why)
        return
    if leaving and out.until_s is not None and turn.now_s >= out.until_s:
        throw_back(turn, attempt, f"its GPUs are promised to job {out.for_job}")
        return
    move_s = turn.state.config.suspend.rules().move_s
    late_s = turn.now_s - max(out.since_s, _heard_since_s(turn, attempt))
    if late_s < move_s * (SLOW_WAY_BACK if out.to_save else 1):
        return
    why = f"its agents have not answered within {format_duration(round(late_s))}"
    if not leaving:
        throw_back(turn, attempt, why)
    elif _can_save_later(turn, attempt, out):
        _come_back(turn, attempt, to_save=True, why=why)
    else:
        _refused(turn, attempt, why)


def _can_save_later(turn: Turn, attempt: Attempt, out: Suspension) -> bool:
    """Whether it may first come back, for however long that takes, and then save."""
    saves = turn.job(attempt.key.job_id).rules.saves
    return saves and out.for_job is not None and out.until_s is None


def _come_back(
    turn: Turn,
    attempt: Attempt,
    *,
    onto: Allocation | None = None,
    to_save: bool = False,
    why: str = "",
) -> None:
    cluster, kind = turn.state.cluster, attempt.lease.kind
    end_s = first_term_end_s(turn.now_s, kind, cluster.terms, cluster.saves.lead_s)
    back = ResumeAsked(term_end_s=end_s, allocation=onto, to_save=to_save)
    moved = onto is not None and onto != attempt.place
    words = ", ".join(filter(None, (why, f"to others: {_words(onto)}" if moved and onto else "")))
    turn.step_attempt(attempt.key, back, actor="master", cause=words)


def _heard_from(turn: Turn, attempt: Attempt) -> bool:
    """Whether this master knows what became of it in a silence, or without a master."""
    greeted = turn.state.nodes.greeted
    silent = attempt.state is AttemptState.UNKNOWN
    return not silent and all(rank.gone or rank.node_id in greeted for rank in attempt.ranks)


def _await_return(turn: Turn, attempt: Attempt) -> None:
    """A refusal let it run on, and ranks of it are still to come back."""
    since_s = turn.state.attempts.unheard.setdefault(attempt.key, turn.now_s)
    move_s = turn.state.config.suspend.rules().move_s
    if turn.now_s - since_s >= move_s:
        throw_back(turn, attempt, f"a rank is not back after {format_duration(move_s)}")


def _heard_since_s(turn: Turn, attempt: Attempt) -> float:
    """Since when its nodes could have answered, and its guest could have left."""
    return max(turn.state.started_s, turn.state.attempts.unheard.get(attempt.key, 0.0))


def _nodes(turn: Turn, allocation: Allocation) -> Iterator[Node]:
    nodes = turn.state.cluster.nodes
    return (nodes[node_id] for node_id in allocation.node_ids if node_id in nodes)


def _words(place: Allocation) -> str:
    return ", ".join(
        f"{slot.node_id}: {'+'.join(map(str, slot.gpu_indices))}" for slot in place.slots
    )


def _place(
    turn: Turn, attempt: Attempt, before: Allocation, above: Mapping[NodeId, int]
) -> Allocation | None:
    """The GPUs to which it can come back just now, be it only to save: those before, else others as
    good. It gets none of others that come back too. Its own go first to jobs that rank above it.
    """
    cluster = turn.state.cluster
    if cluster.is_free(before) and not suspending.taken_above(before, above):
        return before
    kept = dict.fromkeys(before.node_ids, 0)
    for key, place in cluster.claims.out.items():
        if key == attempt.key or not suspending.comes_back(cluster.attempts[key]):
            continue
        for node_id, mask in place.slots:
            if node_id in kept:
                kept[node_id] |= mask
    return suspending.elsewhere(
        attempt, cluster.nodes, lambda it: cluster.free_to_return(it) & ~kept[it]
    )
