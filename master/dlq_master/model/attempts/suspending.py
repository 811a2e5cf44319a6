"""An attempt leaves its GPUs without a save, and comes back to them; pure rules.

Its GPU memory lies in the memory of its hosts meanwhile, and its processes stand still. It keeps
its fence, its ranks and its place: it comes back to the same GPUs. Where those are taken, and its
agents say that it may, it comes back to free ones of the same types on the same nodes. While it is
out it holds no GPU, so its lease names none. A gang leaves as a whole or not at all. Its processes
talk to each other, and those that still ran would wait for the others until their own time limits.

`control/attempts/suspensions.py` drives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from dlq_master.model.attempts.attempt import (
    Attempt,
    AttemptState,
    RankMove,
    Suspension,
    SuspensionPhase,
)
from dlq_master.model.attempts.claims import Claims
from dlq_master.model.attempts.grace import work_at_risk_s
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.lease import LeaseKind, until
from dlq_master.model.nodes.node import Node, NodeFlag, NodeState
from dlq_master.model.resources import Allocation, Slot, indices, mask_of

NOTHING = Allocation(())
# Of a node from which all jobs leave.
EMPTIED = frozenset({NodeFlag.DRAINING, NodeFlag.RESERVED, NodeFlag.RECLAIMED})
# Bytes a second each way, where no move has been measured yet: half of what PCIe 4.0 carries.
FIRST_RATE = 10e9
_KEPT = 0.7  # of what was known, at a new measurement
_MAY_RETURN = (AttemptState.RUNNING, AttemptState.UNKNOWN)
# After so many refusals its agents are not asked again.
MOST_REFUSALS = 3


class SuspendRules(NamedTuple):
    """`longest_s`: after so long without its GPUs it is thrown back to its last checkpoint.
    `guest_s`: only jobs that are expected to run no longer make others leave so. `wait_s`: so long
    its GPUs wait for the job that it left them to. `move_s`: the longest time of a move.
    """

    longest_s: float = 3600.0
    guest_s: float = 300.0
    wait_s: float = 60.0
    move_s: float = 120.0
    only_cheaper: bool = False  # than the job's own save and resume, as they were learned


class Next(StrEnum):
    """The next step of a suspended attempt."""

    NOTHING = "nothing"
    RESUME = "resume"
    SAVE = "save"  # it comes back only to save and leave
    THROW_BACK = "throw_back"  # it ends, and its job goes on from its last checkpoint


# ---- steps


def gone_out(attempt: Attempt, at_s: float) -> Attempt:
    """Its GPUs are free: it begins a stretch without any."""
    before = attempt.suspension
    assert before is not None
    moved = [status.move for status in attempt.ranks if status.move is not None]
    told = sum(move.memory_bytes for move in moved)
    nbytes = told if moved else before.memory_bytes
    out = before._replace(phase=SuspensionPhase.OUT, out_s=at_s, memory_bytes=nbytes)
    return attempt._replace(
        suspension=out,
        suspensions=attempt.suspensions + 1,
        carried_s=work_at_risk_s(attempt, at_s),
        lease=attempt.lease._replace(allocation=NOTHING),
        started_time_s=at_s,
        resized_time_s=at_s,
    )


def refused(attempt: Attempt) -> Attempt:
    """It runs on; ranks that have left are told to come back by a later number."""
    return attempt._replace(suspension=None, moves=attempt.moves + 1)


def coming(
    attempt: Attempt,
    term_end_s: float,
    at_s: float,
    onto: Allocation | None = None,
    *,
    to_save: bool = False,
) -> Attempt:
    """Its GPUs are its own again, or it has others from now on. Where it has not left its GPUs yet,
    they still are its own.
    """
    before = attempt.suspension
    assert before is not None
    place = before.allocation if onto is None else onto
    back = before._replace(
        phase=SuspensionPhase.COMING, since_s=at_s, allocation=place, to_save=to_save
    )
    lease, moves = until(attempt.lease, term_end_s), attempt.moves + 1
    if not attempt.is_out:
        return attempt._replace(suspension=back, moves=moves, lease=lease)
    return attempt._replace(
        suspension=back,
        moves=moves,
        lease=lease._replace(allocation=place),
        suspended_s=attempt.off_gpus_s(at_s),
        started_time_s=at_s,
        resized_time_s=at_s,
    )


def wanted_back(attempt: Attempt) -> Attempt:
    """A person does not want it out any longer."""
    before = attempt.suspension
    assert before is not None
    return attempt._replace(suspension=before._replace(wanted_back=True))


def comes_back(attempt: Attempt) -> bool:
    """Whether it is out, and is to have its GPUs again once they are free."""
    out = attempt.suspension
    if out is None or not attempt.is_out or attempt.stop_cause is not None:
        return False
    return out.for_job is not None or out.wanted_back


def stays_paused(out: Suspension | None) -> bool:
    """Whether a person wants it off its GPUs still."""
    return out is not None and out.for_job is None and not out.wanted_back


def emptied(nodes: Iterable[Node]) -> Node | None:
    """The first of these nodes from which all jobs leave."""
    return next((node for node in nodes if node.flags & EMPTIED), None)


# ---- what its ranks say


def moves_of(attempt: Attempt) -> list[RankMove | None]:
    """The answers of its ranks to the last order; None: not yet."""
    answers = []
    for status in attempt.ranks:
        move = status.move
        told = move is not None and move.number == attempt.moves and move.state != "moving"
        answers.append(move if told else None)
    return answers


def all_are(attempt: Attempt, state: str) -> bool:
    """Whether every rank has carried out the last order."""
    return all(
        move is not None and move.state == state and not move.failure for move in moves_of(attempt)
    )


def failure(attempt: Attempt) -> str:
    """Why a rank has not carried out the last order; empty: none has failed."""
    for status, move in zip(attempt.ranks, moves_of(attempt), strict=True):
        if move is not None and (move.failure or move.state == "stranded"):
            return f"{status.node_id}: {move.failure or move.state}"
    return ""


def is_stranded(attempt: Attempt) -> bool:
    """Whether a rank can neither run nor stay as it is, by whatever order."""
    return any(it.move is not None and it.move.state == "stranded" for it in attempt.ranks)


def is_back(attempt: Attempt) -> bool:
    """Whether all its ranks run, as far as they have said. After a refusal the attempt runs before
    those that had left have come back. One that never left has nothing to say.
    """
    moved = [status.move for status in attempt.ranks if status.move is not None and not status.gone]
    return all(move.number == attempt.moves and move.state == "running" for move in moved)


def is_open(attempt: Attempt) -> bool:
    """Whether it is off its GPUs, moves, or has ranks that are still to come back."""
    if attempt.suspension is not None:
        return True
    return attempt.state in _MAY_RETURN and attempt.stop_cause is None and not is_back(attempt)


# ---- where it comes back to


def elsewhere(
    attempt: Attempt, nodes: Mapping[NodeId, Node], free: Callable[[NodeId], int]
) -> Allocation | None:
    """Free GPUs of the same types on the same nodes, its own ones before others. None: there are
    too few, or a rank cannot come back to others. `free`: the free GPUs of a node, as a bitmask.
    """
    if not all(status.move is not None and status.move.remaps for status in attempt.ranks):
        return None
    slots = []
    for node_id, mask in attempt.place.slots:
        node = nodes.get(node_id)
        found = None if node is None else _as_good(node, mask, free(node_id))
        if found is None:
            return None
        slots.append(Slot(node_id, found))
    return Allocation(tuple(slots))


def _as_good(node: Node, mask: int, free: int) -> int | None:
    kinds: dict[tuple[str, int], int] = {}
    for gpu in node.gpus:
        kind = gpu.gpu_type, gpu.memory_bytes
        kinds[kind] = kinds.get(kind, 0) | 1 << gpu.index
    found = 0
    for owned in kinds.values():
        kept = mask & owned & free
        others = list(indices(owned & free & ~kept))
        needed = (mask & owned).bit_count() - kept.bit_count()
        if len(others) < needed:
            return None
        found |= kept | mask_of(others[:needed])
    return found


# ---- what may be done


def obstacle(attempt: Attempt, job: Job, nodes: Iterable[Node]) -> str:
    """Why it cannot leave its GPUs without a save, in words; empty: it can be tried."""
    if attempt.state is not AttemptState.RUNNING or attempt.stop_cause is not None:
        return "it does not run"
    if attempt.resize is not None or attempt.regrant is not None:
        return "it is being resized"
    if attempt.lease.kind is LeaseKind.PROFILE:
        return "it is being measured"
    if why := _of_job(attempt, job):
        return why
    if any(status.gone for status in attempt.ranks):
        return "a rank of it has ended"
    if attempt.moves - 2 * attempt.suspensions >= 2 * MOST_REFUSALS:
        return "its agents have refused it several times"
    for node in nodes:
        if not node.suspend_bytes:
            return f"node {node.node_id} suspends no jobs"
        if node.state is not NodeState.UP or NodeFlag.DRAINING in node.flags:
            return f"node {node.node_id} is being emptied, or is silent"
    return ""


def _of_job(attempt: Attempt, job: Job) -> str:
    if job.request.without_gpus:
        return "it has no GPUs"
    if attempt.together:
        return "it starts and ends together with others"
    if job.state is not JobState.QUEUED:
        return "it is held"
    if job.promised is not None:
        # Nobody knows when it comes back, and the plan of its promise counts on any GPUs.
        return "a deadline of it is promised"
    return ""


def is_short(guest: Job, rules: SuspendRules, *, can_save: bool) -> bool:
    """Whether another one may stand still for it, which may save instead or not. Such a job is a
    trial, or known to end soon. An interactive one lasts as long as its limit: nobody knows more.
    """
    if guest.reduced or (guest.rules.attended and not can_save):
        return True
    estimate_s = None if guest.rules.attended else guest.duration_estimate_s
    known = [it for it in (guest.time_limit_s, estimate_s) if it is not None]
    return bool(known) and min(known) <= min(rules.guest_s, rules.longest_s)


def next_step(
    attempt: Attempt,
    nodes: Iterable[Node],
    *,
    guest_waits: bool,
    gpus_free: bool,
    now_s: float,
    rules: SuspendRules,
    heard_s: float = 0.0,
    grace_s: float = 0.0,
    others_leave: bool = False,
) -> tuple[Next, str]:
    """The next step of an attempt that is out, and why. `guest_waits`: the job that it left for has
    not started yet. `gpus_free`: all its GPUs are. `heard_s`: since then there is a master, and its
    nodes are heard. `grace_s`: so long it waits for its GPUs where it can stay no longer.
    """
    out = attempt.suspension
    if attempt.state is not AttemptState.SUSPENDED or out is None:
        return Next.NOTHING, ""
    if is_stranded(attempt):
        return Next.THROW_BACK, failure(attempt) or "a rank of it cannot be brought back"
    if out.phase is not SuspensionPhase.OUT:
        return Next.NOTHING, ""
    if (must := _must_save(out, nodes, now_s)) is not None:
        why, told_s = must
        if gpus_free:
            return Next.SAVE, why
        if now_s - max(told_s, heard_s) >= grace_s:
            return Next.THROW_BACK, f"{why}, and its GPUs are not free"
        return Next.NOTHING, ""
    since_s = now_s - max(out.out_s or out.since_s, heard_s)
    late = since_s >= rules.wait_s and not others_leave
    back = out.wanted_back if out.for_job is None else late or not guest_waits
    if back and gpus_free:
        return Next.RESUME, ""
    if out.for_job is not None and since_s >= rules.longest_s:
        return Next.THROW_BACK, f"it was off its GPUs for {rules.longest_s:g} s"
    return Next.NOTHING, ""


def guest_waits(jobs: Mapping[JobId, Job], guest: JobId | None) -> bool:
    """Whether the job `guest`, for which an attempt left its GPUs, has yet to start. False without
    such a job.
    """
    job = None if guest is None else jobs.get(guest)
    return job is not None and job.waiting


def others_leave(
    attempts: Mapping[AttemptKey, Attempt], claims: Claims, guest: JobId | None
) -> bool:
    """Whether attempts are still leaving their GPUs for the job `guest`, with or without a save.
    `guest` starts once they are gone.
    """
    if guest is None:
        return False
    words = f"for job {guest}"
    if any(attempts[key].stop_detail == words for key in claims.pausing):
        return True
    away = (attempts[key].suspension for key in claims.suspended)
    return any(
        it is not None and it.phase is SuspensionPhase.LEAVING and it.for_job == guest
        for it in away
    )


def add_kept(attempt: Attempt, above: dict[NodeId, int]) -> None:
    """Add to `above`, masks of GPUs by node, the GPUs to which the attempt comes back, if it does.
    Attempts that rank below it do not get them (`taken_above`).
    """
    if comes_back(attempt):
        for node_id, mask in attempt.place.slots:
            above[node_id] = above.get(node_id, 0) | mask


def taken_above(allocation: Allocation, above: Mapping[NodeId, int]) -> bool:
    """Whether an attempt that ranks above comes back to any of these GPUs (`add_kept`)."""
    return any(mask & above.get(node_id, 0) for node_id, mask in allocation.slots)


def _must_save(out: Suspension, nodes: Iterable[Node], now_s: float) -> tuple[str, float] | None:
    """Why it can stay no longer, and since when; None: it can."""
    if (node := emptied(nodes)) is not None:
        told_s = [note.since_s for note in node.notes if note.flag in EMPTIED]
        return f"node {node.node_id} is being emptied", max(told_s, default=0.0)
    if out.ends_s is not None and now_s >= out.ends_s:
        return f"a suspension by a person lasts {out.lasts_s:g} s", out.ends_s
    return None


# ---- how long a move takes: bytes over measured bandwidth


class MoveCosts:
    """The bytes on GPUs just now, as agents tell, and the bandwidth of each node.

    Nothing of it is stored: agents tell the first anew, and moves the second.
    """

    __slots__ = ("_rates", "each", "used")

    def __init__(self, each: int | None = None) -> None:
        """`each`: bytes of any GPU of which nobody has told; None: all of its memory."""
        self.used: dict[NodeId, Mapping[int, int]] = {}
        self.each = each
        self._rates: dict[NodeId, float] = {}

    def measured(self, node_id: NodeId, nbytes: int, took_s: float) -> None:
        """A rank of this node has moved so much."""
        if nbytes > 0 and took_s > 0.0:
            rate, known = nbytes / took_s, self._rates.get(node_id)
            new = rate if known is None else _KEPT * known + (1 - _KEPT) * rate
            self._rates[node_id] = new

    def rate(self, node_id: NodeId) -> float:
        """Bytes a second, each way."""
        return self._rates.get(node_id, FIRST_RATE)

    def nbytes(self, attempt: Attempt, node: Node) -> int:
        """Bytes of the attempt on the GPUs of a node."""
        slot = next((it for it in attempt.place.slots if it.node_id == node.node_id), None)
        told = self.used.get(node.node_id, {})
        sizes = {gpu.index: gpu.memory_bytes for gpu in node.gpus}
        found = 0
        for index in () if slot is None else slot.gpu_indices:
            whole = sizes.get(index, 0) if self.each is None else self.each
            found += told.get(index, whole)
        return found

    def seconds(self, attempt: Attempt, nodes: list[Node]) -> float:
        """One way; the nodes move at the same time."""
        return max(
            (self.nbytes(attempt, node) / self.rate(node.node_id) for node in nodes), default=0.0
        )
