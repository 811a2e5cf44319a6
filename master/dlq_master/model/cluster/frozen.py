"""One instant of the working state as values alone, and the working state again made of them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.costs import StopCosts
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.demand import Offers
from dlq_master.model.estimates.history import History
from dlq_master.model.estimates.slowdowns import Slowdowns
from dlq_master.model.estimates.traffic import Packing
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.trials import Remembered
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.node import Node
from dlq_master.model.nodes.type_speeds import ALL_ALIKE, TypeSpeeds
from dlq_master.model.order.order import Ordering, Positions
from dlq_master.model.usage.shares import Shares


class Frozen(NamedTuple):
    """All that decides a plan. Ended jobs that hold nothing are left out: no policy looks at them.

    The learned values of a cluster (`history`, `slowdowns`, `offers`, `profiled`, `shares`,
    `costs`, `positions`) are those of the cluster itself, which goes on changing them. Write them
    down at once, or do not keep them.
    """

    terms: Terms
    thresholds: tuple[float, ...]  # of levels, as learned by now
    jobs: tuple[Job, ...]
    attempts: tuple[Attempt, ...]  # live ones
    nodes: tuple[Node, ...]
    slot: int
    packing: Packing | None
    positions: Positions
    unsettled: tuple[JobId, ...]
    history: History | None
    slowdowns: Slowdowns
    offers: Offers
    profiled: Remembered
    shares: Shares | None
    costs: StopCosts
    speeds: TypeSpeeds = ALL_ALIKE


def freeze(cluster: Cluster, jobs: tuple[Job, ...] | None = None) -> Frozen:
    """The cluster as values, with all its jobs or those; costs O(jobs), and copies none."""
    if jobs is None:
        every, held = cluster.jobs.values(), cluster.attempts
        jobs = tuple([job for job in every if not job.ended or job.live_key in held])
    return Frozen(
        terms=cluster.terms,
        thresholds=cluster.ordering.thresholds,
        jobs=jobs,
        attempts=tuple(cluster.attempts.values()),
        nodes=tuple(cluster.nodes.values()),
        slot=cluster.slot,
        packing=cluster.packing,
        positions=cluster.moves.positions,
        unsettled=tuple(cluster.moves.unsettled),
        history=None if cluster.ordering.refresh is None else cluster.history,
        slowdowns=cluster.slowdowns,
        offers=cluster.offers,
        profiled=cluster.profiling.remembered,
        shares=cluster.shares,
        costs=cluster.costs,
        speeds=cluster.speeds,
    )


def thaw(frozen: Frozen, ordering: Ordering) -> Cluster:
    """A cluster for which every plan is the one that it would have been for the frozen one.

    `ordering`: of the policy under which it was frozen, with the values that the cluster had
    learned.
    """
    cluster = Cluster(replace(ordering, thresholds=frozen.thresholds), frozen.terms, frozen.speeds)
    cluster.learn(frozen.history, frozen.slowdowns, frozen.offers)
    cluster.share(frozen.shares)
    cluster.packing = frozen.packing
    cluster.slot = frozen.slot
    for node in frozen.nodes:
        cluster.put_node(node)
    cluster.capacity.ready()  # some readers take that for granted
    for job in frozen.jobs:
        cluster.put_job(job)
    for attempt in frozen.attempts:
        cluster.put_attempt(attempt)
    cluster.profiling.remember(frozen.profiled)  # the jobs above have told some of it again
    cluster.costs = frozen.costs  # likewise
    cluster.moves.positions = frozen.positions
    cluster.moves.unsettled = dict.fromkeys(frozen.unsettled)
    cluster.take_touched()
    return cluster
