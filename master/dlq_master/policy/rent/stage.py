"""The rent stage: the slot of a policy that rents machines for jobs, and gives machines back.

It decides beside the own nodes, on the state that the plan of the other stages has left. Waiting
jobs start on rented machines, running jobs migrate to them, and machines are rented and given back.
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
from dlq_master.policy.rent.line import NOBODY, free_on, in_line, may_rent, own_end_s
from dlq_master.policy.rent.moving import Moving, movable, wanting_of

if TYPE_CHECKING:
    import numpy as np

    from dlq_master.model.jobs.job import Job
    from dlq_master.policy.priced.catalogue import NodeType
    from dlq_master.policy.priced.situation import Solver
    from dlq_master.policy.rent.market import Market, Put
    from dlq_master.policy.rent.times import MachineRunTimes


class RentQuestion(NamedTuple):
    """The facts that the stage reads beside the view.

    `times`: how long jobs run on machines, as learned by now. `draw`: a generator, the same at each
    call. `outranked`: the running jobs that give way at the end of their terms, and to whom. That
    takes a walk over all jobs, so it is asked only where machines would be rented if no job did.
    """

    times: Callable[[], MachineRunTimes]
    draw: Callable[[], np.random.Generator]
    outranked: Callable[[], Mapping[AttemptKey, JobId]]
    waiting: Callable[[], WaitingIndex]


class RentDecision(NamedTuple):
    """The plan and its grounds. `puts`: jobs with a place on a machine, also on one that boots.
    `market` None: there was nothing to decide.
    """

    plan: Plan = Plan()
    puts: Sequence[Put] = ()
    market: Market | None = None


class RentMethod(NamedTuple):
    """A choice of how to rent: a machine of each pool, and the method that chooses among them."""

    types: tuple[NodeType, ...]
    solver: Solver


class RentsNothing:
    """The null object: there are no pools."""

    prices: Mapping[str, float] = {}  # of a machine for an hour, by pool

    def decide(self, view: View, asked: RentQuestion) -> RentDecision:
        """The changes of this instant."""
        return RentDecision()

    def arrivals(self, view: View, arrived: Sequence[Migrate]) -> Plan:
        """Jobs that have left their GPUs for a machine start there."""
        return Plan()


class RentsMachines(RentsNothing):
    """Rents a machine where being late would cost more. `grows`: elastic jobs grow on own nodes;
    `grid`: leases have terms.
    """

    def __init__(self, method: RentMethod, *, grows: bool, grid: bool) -> None:
        self._types, self._solver = method
        self._grows, self._grid = grows, grid
        self._place = {kind.name: n for n, kind in enumerate(self._types)}
        self.prices = {kind.name: kind.price_per_hour for kind in self._types}

    def decide(self, view: View, asked: RentQuestion) -> RentDecision:
        cluster, here = view.cluster, view.machines.here.values()
        line = list(in_line(cluster, asked.waiting()))
        pending = [cluster.jobs[job_id] for job_id in cluster.pending]
        there = {one.node_id for one in here}
        # A job that failed on one of them goes to none of them; an idle one goes back.
        wanting = [
            job
            for job in (*line, *pending)
            if may_rent(job) and there.isdisjoint(job.request.avoid)
        ]
        moving = {
            key: job
            for key, job in movable(cluster, view.now_s).items()
            if there.isdisjoint(job.request.avoid)
        }
        if not (wanting or here or moving):
            return RentDecision()
        return self._decided(view, asked, line, wanting, moving)

    def arrivals(self, view: View, arrived: Sequence[Migrate]) -> Plan:
        puts = [(one.key.job_id, one.machine, one.gpus) for one in arrived]
        return Plan(tuple(self._placed(view, puts)))

    def _decided(
        self,
        view: View,
        asked: RentQuestion,
        line: Sequence[Job],
        wanting: Sequence[Job],
        moving: Moving,
    ) -> RentDecision:
        from dlq_master.policy.rent.decide import decide

        times = asked.times()

        def market_of(outranked: Mapping[AttemptKey, JobId]) -> Market:
            return self._market(view, times, line, wanting, moving, outranked)

        market = market_of(NOBODY)
        puts, others = decide(market, self._solver, asked.draw())
        if any(isinstance(it, Provision) for it in others) and (outranked := asked.outranked()):
            market = market_of(outranked)
            puts, others = decide(market, self._solver, asked.draw())
        return RentDecision(Plan((*self._placed(view, puts), *others)), puts, market)

    def _market(
        self,
        view: View,
        times: MachineRunTimes,
        line: Sequence[Job],
        wanting: Sequence[Job],
        moving: Moving,
        outranked: Mapping[AttemptKey, JobId],
    ) -> Market:
        from dlq_master.policy.rent import market

        cluster, machines = view.cluster, view.machines
        ends = own_end_s(
            cluster,
            view.now_s,
            line,
            partial(times.in_line, own=cluster.own.gpus),
            grows=self._grows,
            outranked=outranked,
            moving=moving,
        )
        offers = [market.MachineOffer(kind, machines.left[kind.name]) for kind in self._types]
        here = [
            market.here(cluster, one, at, self._types[at], cluster.migrations.to(one.request_id))
            for one in machines.here.values()
            if (at := self._place.get(one.pool)) is not None
        ]
        jobs = wanting_of(cluster, view.now_s, wanting, moving, outranked, times, ends)
        spare = machines.spare_per_hour, machines.spare
        return market.Market(view.now_s, tuple(offers), tuple(here), jobs, *spare)

    def _placed(
        self, view: View, puts: Iterable[tuple[int, str, int]]
    ) -> Iterator[Start | Migrate]:
        """The jobs with a place on a machine that takes work now, by job, machine and GPUs."""
        cluster, machines = view.cluster, view.machines
        taken: dict[NodeId, int] = {}  # GPUs, by earlier starts
        for job_id, name, gpus in puts:
            if not machines.takes_work(cluster.nodes, name):
                continue
            job, machine = cluster.jobs[JobId(job_id)], machines.here[name]
            why = Reason(ReasonCode.RENTED, detail=machine.pool)
            if job.live_key is not None:
                grace_s = stop_grace_s(cluster.attempts[job.live_key], job)
                yield Migrate(job.live_key, name, gpus, grace_s, why)
                continue
            given = taken.get(machine.node_id, 0)
            free = [*indices(free_on(cluster, cluster.nodes[machine.node_id]) & ~given)][:gpus]
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
