"""The walk that only starts work: in rank order over what is free, skipping what does not fit."""

from __future__ import annotations

from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.resources import Shape
from dlq_master.policy.heads import Heads
from dlq_master.policy.outcome import Chosen, Claim, Outcome, nothing
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.reserve import reserve
from dlq_master.policy.space import Space


def walk(cluster: Cluster, placement: Placement, *, blocking: bool) -> Outcome:
    """Which waiting jobs start now. `blocking`: nobody passes the first that does not fit.

    A job that fits only together with GPUs that are being released claims them for this plan, and
    a promoted job that does not fit at all keeps what is free where it may come to fit: whoever
    ranks lower does not get those GPUs.
    """
    outcome = nothing()
    waiting = cluster.waiting
    space = Space(cluster.capacity, placement)
    closed: set[Shape] = set()
    for rank in waiting.ranks:
        if not space.free_total:
            break
        fifos = waiting.by_rank[rank]
        # A promoted job has to be looked at even if it fits nowhere: it reserves.
        all_count = blocking or cluster.ordering.promotes
        heads = Heads(fifos, closed, _NO_LIMIT if all_count else space.most_left())
        if heads.heap:
            blocked = _serve(space, heads, closed, outcome, blocking)
            if blocked is not None:
                return outcome._replace(head_of_line=blocked)
    return outcome


def _serve(
    space: Space, heads: Heads, closed: set[Shape], outcome: Outcome, blocking: bool
) -> JobId | None:
    """The job that nobody may pass, once the walk has come to it."""
    heap, chosen = heads.heap, outcome.chosen
    while heap:
        position, job_id, shape, _ = heap[0]
        found = space.find_free(shape)
        if found is not None:
            chosen.append(Chosen(job_id, found))
            if shape.gpus == space.free_total:  # the last of it: nobody else needs a look
                space.free_total = 0
                return None
            space.take(found)
            heads.advance()
        elif (claim := space.find_soon(shape)) is not None:
            outcome.claims.append(Claim(job_id, claim, reserved=False))
            if blocking:
                return job_id
            space.take(claim)
            heads.advance()
        elif blocking:
            return job_id
        elif position < 0:
            kept = reserve(space, shape)
            if kept is not None:
                outcome.claims.append(Claim(job_id, kept, reserved=True))
            heads.advance()
        else:
            closed.add(shape)
            heads.close()
        if not space.free_total:
            return None
    return None


_NO_LIMIT = float("inf")
