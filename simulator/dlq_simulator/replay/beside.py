"""Renting beside own nodes: the master's rule (`policy.rent`), asked at every event and every
`LOOK_S` in between.

The master looks once a second, after its plan; here that is at the same instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, inf

import numpy as np

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.view import View
from dlq_master.policy.policy import Policy
from dlq_master.policy.priced.catalogue import NodeType
from dlq_master.policy.priced.presets import build
from dlq_master.policy.registry.settings import PolicyError
from dlq_master.policy.rent import market
from dlq_master.policy.rent.decide import AHEAD_S
from dlq_master.policy.rent.line import in_line, may_rent, own_end_s
from dlq_master.policy.rent.market import MachineOffer, Market, Provision, Put, Release
from dlq_master.policy.rent.moving import Moving, OnTheWay, movable, with_moving
from dlq_master.policy.rent.settle import settled
from dlq_master.policy.rent.starting import leave_for, start_on
from dlq_master.policy.rent.times import MachineRunTimes
from dlq_master.policy.turn import carry_out
from dlq_simulator.errors import UsageError
from dlq_simulator.replay.events import NOBODY, Agenda, InstantKind
from dlq_simulator.replay.machines import RentedMachines
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.course import Seconds
from dlq_simulator.world.fleet import EPOCH

LOOK_S = 300  # while a job waits that machines may be rented for


class Beside:
    """Decides on machines in a replay, and carries it out. Draws only for methods that do."""

    def __init__(
        self,
        spec: ClusterSpec,
        cluster: Cluster,
        policy: Policy,
        machines: RentedMachines,
        agenda: Agenda,
        seed: int,
    ) -> None:
        if spec.renting is None:
            raise ValueError("the cluster file rents no machines beside its own nodes")
        self.machines = machines
        self._cluster, self._policy, self._agenda = cluster, policy, agenda
        self._renting, self._most = spec.renting, spec.rent_at_most or inf
        self._groups = spec.catalogue
        self._types = tuple(_type(group) for group in spec.catalogue)
        self._order = {group.name: n for n, group in enumerate(spec.catalogue)}
        own = {*spec.own_speeds(None).values()}
        each = own.pop() if len(own) == 1 else 1
        speeds = [group.speed / each for group in spec.catalogue]
        self._times = MachineRunTimes(self._types, speeds, np.random.default_rng([seed, 0]))
        self._seed, self._looks, self._next_s = seed, 0, inf
        self._on_the_way = OnTheWay()
        try:
            self._solver = build(self._renting.policy, self._renting.settings)
        except PolicyError as error:
            what = f"cannot rent by {self._renting.policy!r}"
            raise UsageError(what, str(error), "correct [renting]") from error

    def look(self, now_s: Seconds) -> list[Happened]:
        """Decide, and carry it out; returns the changes of jobs."""
        self.machines.note_stays(now_s)
        happened: list[Happened] = []
        line = list(in_line(self._cluster))
        pending = [self._cluster.jobs[job_id] for job_id in self._cluster.pending]
        wanting = [job for job in (*line, *pending) if may_rent(job)]
        here, moving = self.machines.here(), movable(self._cluster, now_s)
        if wanting or here or moving:
            self._looks += 1
            _, changes = settled(
                View(self._cluster, now_s),
                self._policy,
                self._solver,
                lambda outranked: self._market(now_s, line, wanting, here, moving, outranked),
                lambda: np.random.default_rng([self._seed, self._looks]),
            )
            for change in changes:
                happened += self._carried_out(change, now_s)
            self.machines.note_stays(now_s)
        self._wake(now_s, [*wanting, *moving.values()])
        return happened

    def arrive(self, now_s: Seconds) -> list[Happened]:
        """Before the policy decides on them: jobs that left for a machine start there."""
        found: list[Happened] = []
        for put in self._on_the_way.arrived(self._cluster):
            if self.machines.every[put.request_id].state is MachineState.UP:
                found += self._start(put, now_s)
        return found

    def ended(self, job: Job) -> None:
        """A job is done: its run time is a sample for others."""
        self._times.learn(job, self.machines.speed_of.pop(job.job_id, 1.0))

    def _market(
        self,
        now_s: Seconds,
        line: list[Job],
        wanting: list[Job],
        here: Iterable[Machine],
        moving: Moving,
        outranked: Mapping[AttemptKey, JobId],
    ) -> Market:
        offers = tuple(
            MachineOffer(kind, self.machines.left(group, now_s))
            for kind, group in zip(self._types, self._groups, strict=True)
        )
        machines = tuple(
            market.here(self._cluster, one, self._order[one.pool], self._types[self._order[one.pool]], self._on_the_way.to(one.request_id))  # noqa: E501
            for one in here
        )  # fmt: skip
        ends = own_end_s(
            self._cluster,
            now_s,
            line,
            self._times.in_line,
            grows=self._policy.sizing is not None,
            outranked=outranked,
            moving=moving,
        )
        found = with_moving(self._cluster, now_s, wanting, moving, outranked, self._times, ends)
        jobs = market.wanting(*found)
        hour, day = self._renting.most_per_hour, self._renting.most_per_day
        per_hour = sum(one.price_per_hour for one in self.machines.open())
        return Market(
            now_s,
            offers,
            machines,
            jobs,
            inf if hour is None else hour - per_hour,
            inf if day is None else day - self.machines.every.day_cost(now_s),
        )

    def _carried_out(self, change: market.Change, now_s: Seconds) -> list[Happened]:
        match change:
            case Put():
                return self._put(change, now_s)
            case Release():
                self.machines.give_back(change.request_id, now_s)
            case Provision():
                if len(self.machines.open()) < self._most:
                    self.machines.ask(self._groups[change.offer], change.jobs, now_s)
        return []

    def _put(self, put: Put, now_s: Seconds) -> list[Happened]:
        machine = self.machines.every[put.request_id]
        if machine.state is not MachineState.UP:
            return []
        attempt = self._cluster.live_attempt(self._cluster.jobs[JobId(put.job)])
        if attempt is None:
            return self._start(put, now_s)
        self._on_the_way.add(put)
        plan = leave_for(self._cluster, self._cluster.jobs[JobId(put.job)], machine.pool)
        carry_out(View(self._cluster, now_s), plan, self._policy, EPOCH)
        self.machines.leaves(attempt.key, now_s)
        return []

    def _start(self, put: Put, now_s: Seconds) -> list[Happened]:
        machine = self.machines.every[put.request_id]
        cluster, grid = self._cluster, self._policy.grid
        job, node = cluster.jobs[JobId(put.job)], cluster.nodes[machine.node_id]
        plan = start_on(cluster, job, node, put.gpus, machine.pool, now_s, grid=grid)
        return carry_out(View(cluster, now_s), plan, self._policy, EPOCH)

    def _wake(self, now_s: Seconds, wanting: list[Job]) -> None:
        """Schedule the next look that no other event brings."""
        here = self.machines.here()
        over = [
            ceil(one.paid_until_s - AHEAD_S) for one in here if one.paid_until_s - AHEAD_S > now_s
        ]
        again = [now_s + LOOK_S] if wanting and (here or self._agenda.heap) else []
        next_s = min([self.machines.next_s(now_s), *over, *again])
        if next_s < inf and (next_s < self._next_s or self._next_s <= now_s):
            self._next_s = next_s
            self._agenda.foresee(next_s, InstantKind.RENT, NOBODY, 0)


def _type(group: NodeGroup) -> NodeType:
    return NodeType(
        group.name,
        group.gpu_type,
        group.gpus,
        float(group.price_per_hour or 0),
        float(group.boot_s),
        float(group.minimum_billing_s),
        float(group.until_s),
    )
