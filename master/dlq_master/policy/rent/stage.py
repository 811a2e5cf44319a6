"""The rent stage of a policy: it rents machines for jobs, and gives machines back.

It runs on the state that the plan of the other stages has left. Waiting jobs start on rented
machines, running jobs migrate to them, and machines are rented and given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from dlq_master.model.attempts.grace import stop_grace_s
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.lease import LeaseKind, first_term_end_s
from dlq_master.model.order.waiting import WaitingIndex
from dlq_master.model.plan import Migrate, Plan, Provision, Start
from dlq_master.model.resources import Allocation, Slot, indices, mask_of
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.rent.line import (
    NONE_OUTRANKED,
    free_mask,
    may_rent,
    own_node_ends_s,
    waiting_in_order,
)
from dlq_master.policy.rent.moving import MovableJobs, bidders_of, movable_jobs

if TYPE_CHECKING:
    import numpy as np

    from dlq_master.model.jobs.job import Job
    from dlq_master.policy.priced.catalogue import NodeType
    from dlq_master.policy.priced.situation import Solver
    from dlq_master.policy.rent.market import MachineGrant, Market
    from dlq_master.policy.rent.times import MachineRunTimes


class RentQuestion(NamedTuple):
    """The facts that the stage reads beside the view, each on demand.

    `times`: learned run times on machines. `draw`: a generator with the same seed at each call.
    `outranked`: running jobs that will leave at the end of their terms, and for which job. It walks
    over all jobs, so it is asked only once machines would be rented without it. `waiting`: the
    waiting jobs.
    """

    times: Callable[[], MachineRunTimes]
    draw: Callable[[], np.random.Generator]
    outranked: Callable[[], Mapping[AttemptKey, JobId]]
    waiting: Callable[[], WaitingIndex]


class RentDecision(NamedTuple):
    """The plan and its grounds. `grants`: jobs with GPUs of a present machine, booting ones
    included. `market` is None if there was nothing to decide.
    """

    plan: Plan = Plan()
    grants: Sequence[MachineGrant] = ()
    market: Market | None = None


class RentMethod(NamedTuple):
    """How to rent: the hardware of each pool, and the method of `policy.priced` that chooses."""

    types: tuple[NodeType, ...]
    solver: Solver


class RentsNothing:
    """The rent stage of a cluster without pools."""

    prices: Mapping[str, float] = {}  # of a machine for an hour, by pool

    def decide(self, view: View, asked: RentQuestion) -> RentDecision:
        """The changes at this instant."""
        return RentDecision()

    def arrivals(self, view: View, arrived: Sequence[Migrate]) -> Plan:
        """The starts of jobs that have left their GPUs for a machine."""
        return Plan()


class RentsMachines(RentsNothing):
    """Rents machines where lateness would cost more. `grows`: elastic jobs grow on own nodes;
    `grid`: leases have terms.
    """

    def __init__(self, method: RentMethod, *, grows: bool, grid: bool) -> None:
        self._types, self._solver = method
        self._grows, self._grid = grows, grid
        self._place = {kind.name: n for n, kind in enumerate(self._types)}
        self.prices = {kind.name: kind.price_per_hour for kind in self._types}

    def decide(self, view: View, asked: RentQuestion) -> RentDecision:
        cluster, here = view.cluster, view.machines.here.values()
        line = list(waiting_in_order(cluster, asked.waiting()))
        pending = [cluster.jobs[job_id] for job_id in cluster.pending]
        there = {one.node_id for one in here}
        # A job that failed on one of them goes to none of them; an idle one goes back.
        candidates = [
            job
            for job in (*line, *pending)
            if may_rent(job) and there.isdisjoint(job.request.avoid)
        ]
        moving = {
            key: job
            for key, job in movable_jobs(cluster, view.now_s).items()
            if there.isdisjoint(job.request.avoid)
        }
        if not (candidates or here or moving):
            return RentDecision()
        return self._decided(view, asked, line, candidates, moving)

    def arrivals(self, view: View, arrived: Sequence[Migrate]) -> Plan:
        grants = [(one.key.job_id, one.machine, one.gpus) for one in arrived]
        return Plan(tuple(self._placed(view, grants)))

    def _decided(
        self,
        view: View,
        asked: RentQuestion,
        line: Sequence[Job],
        candidates: Sequence[Job],
        moving: MovableJobs,
    ) -> RentDecision:
        """Decide, once more with outranked jobs in the line if machines would be rented."""
        from dlq_master.policy.rent.decide import decide

        times = asked.times()

        def market_of(outranked: Mapping[AttemptKey, JobId]) -> Market:
            return self._market(view, times, line, candidates, moving, outranked)

        market = market_of(NONE_OUTRANKED)
        grants, others = decide(market, self._solver, asked.draw())
        if any(isinstance(it, Provision) for it in others) and (outranked := asked.outranked()):
            market = market_of(outranked)
            grants, others = decide(market, self._solver, asked.draw())
        return RentDecision(Plan((*self._placed(view, grants), *others)), grants, market)

    def _market(
        self,
        view: View,
        times: MachineRunTimes,
        line: Sequence[Job],
        candidates: Sequence[Job],
        moving: MovableJobs,
        outranked: Mapping[AttemptKey, JobId],
    ) -> Market:
        from dlq_master.policy.rent import market

        cluster, machines = view.cluster, view.machines
        ends = own_node_ends_s(
            cluster,
            view.now_s,
            line,
            partial(times.line_entries, own=cluster.own.gpus),
            grows=self._grows,
            outranked=outranked,
            moving=moving,
        )
        offers = [market.MachineOffer(kind, machines.left[kind.name]) for kind in self._types]
        here = [
            market.present_machine(
                cluster, one, at, self._types[at], cluster.migrations.to(one.request_id)
            )
            for one in machines.here.values()
            if (at := self._place.get(one.pool)) is not None
        ]
        jobs = bidders_of(cluster, view.now_s, candidates, moving, outranked, times, ends)
        spare = machines.spare_per_hour, machines.spare
        return market.Market(view.now_s, tuple(offers), tuple(here), jobs, *spare)

    def _placed(
        self, view: View, grants: Iterable[tuple[int, str, int]]
    ) -> Iterator[Start | Migrate]:
        """Starts and migrations of the jobs that were granted GPUs of a machine that takes work
        now. `grants`: (job, request id, GPUs).
        """
        cluster, machines = view.cluster, view.machines
        taken: dict[NodeId, int] = {}  # GPUs, by earlier starts
        for job_id, name, gpus in grants:
            if not machines.takes_work(cluster.nodes, name):
                continue
            job, machine = cluster.jobs[JobId(job_id)], machines.here[name]
            why = Reason(ReasonCode.RENTED, detail=machine.pool)
            if job.live_key is not None:
                grace_s = stop_grace_s(cluster.attempts[job.live_key], job)
                yield Migrate(job.live_key, name, gpus, grace_s, why)
                continue
            given = taken.get(machine.node_id, 0)
            free = [*indices(free_mask(cluster, cluster.nodes[machine.node_id]) & ~given)][:gpus]
            if not job.waiting or len(free) < gpus:
                continue
            mask, kind = mask_of(free), LeaseKind.BE
            taken[machine.node_id] = given | mask
            end_s = inf
            if self._grid:
                lead_s = cluster.saves.lead_s
                end_s = first_term_end_s(view.now_s, kind, cluster.terms, lead_s)
            allocation = Allocation((Slot(machine.node_id, mask),))
            yield Start(job.job_id, allocation, kind, end_s, why, rented=True)
