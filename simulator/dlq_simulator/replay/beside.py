"""Renting beside own nodes: the rent stage of the policy, at every event and every `LOOK_S`.

A master decides once a second, after its plan; here that is at the same instant.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf

import numpy as np

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.machine_runs import runs_of
from dlq_master.model.machines.renting import RentingView
from dlq_master.model.plan import Change, Migrate, Provision, Release, Start
from dlq_master.model.view import View
from dlq_master.policy.pipeline import rent
from dlq_master.policy.policy import Policy
from dlq_master.policy.registry.renting import build
from dlq_master.policy.registry.settings import PolicyError
from dlq_master.policy.rent.decide import AHEAD_S
from dlq_master.policy.rent.stage import RentMethod
from dlq_master.policy.rent.times import MachineRunTimes
from dlq_master.policy.turn import carry_out
from dlq_simulator.errors import UsageError
from dlq_simulator.priced.instance import node_type
from dlq_simulator.replay.events import NOBODY, Agenda, InstantKind
from dlq_simulator.replay.machines import RentedMachines
from dlq_simulator.world.clusters import ClusterSpec
from dlq_simulator.world.course import Seconds
from dlq_simulator.world.fleet import EPOCH

LOOK_S = 300  # while a job waits that machines may be rented for


class Beside:
    """Decides on machines in a replay, and applies the decision. Uses random numbers only for
    methods that do.
    """

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
        self._cluster, self._agenda = cluster, agenda
        self._renting, self._most = spec.renting, spec.rent_at_most or inf
        self._groups = spec.catalogue
        types = tuple(node_type(group) for group in spec.catalogue)
        speeds = [group.speed for group in spec.catalogue]
        self._times = MachineRunTimes(types, speeds, cluster.ran, cluster.speeds)
        self._seed, self._looks, self._next_s = seed, 0, inf
        try:
            solver = build(self._renting.policy, self._renting.settings)
        except PolicyError as error:
            what = f"cannot rent by {self._renting.policy!r}"
            raise UsageError(what, str(error), "correct [renting]") from error
        self._policy = replace(policy, renting=RentMethod(types, solver))

    def look(self, now_s: Seconds) -> list[Happened]:
        """Decide and apply; return the changes of jobs."""
        self.machines.note_stays(now_s)
        self._times.look(now_s)
        view = self._view(now_s)
        decided = rent(view, self._policy, lambda: self._times, self._draw)
        happened: list[Happened] = []
        if decided.market is not None:
            self._looks += 1
            happened = carry_out(view, decided.plan, self._policy, EPOCH)
            for change in decided.plan.changes:
                self._provide(change, now_s)
            self.machines.note_stays(now_s)
        self._wake(now_s, wanted=decided.market is not None and bool(decided.market.bidders))
        return [one for one in happened if isinstance(one.change, Start)]

    def arrive(self, now_s: Seconds) -> list[Happened]:
        """Before the policy decides about machines: start jobs that have left for a machine."""
        view = self._view(now_s)
        plan = self._policy.rent.arrivals(
            view, self._cluster.migrations.arrived(self._cluster.jobs, self._cluster.attempts)
        )
        return carry_out(view, plan, self._policy, EPOCH)

    def ended(self, job: Job, counted: float) -> None:
        """A job has ended on GPUs of this speed: its run time is a sample for others."""
        speed = self.machines.speed_of.pop(job.job_id, counted)
        self._cluster.ran.extend(runs_of(job, job.end_time_s or 0.0, speed, counted))

    def _view(self, now_s: Seconds) -> View:
        hour, day = self._renting.most_per_hour, self._renting.most_per_day
        per_hour = sum(one.price_per_hour for one in self.machines.every.open())
        machines = RentingView(
            {one.request_id: one for one in self.machines.here()},
            self._cluster.nodes.keys(),
            {group.name: self.machines.left(group, now_s) for group in self._groups},
            inf if hour is None else hour - per_hour,
            inf if day is None else day - self.machines.every.day_cost(now_s),
        )
        return View(self._cluster, now_s, machines=machines)

    def _draw(self) -> np.random.Generator:
        return np.random.default_rng([self._seed, self._looks + 1])

    def _provide(self, change: Change, now_s: Seconds) -> None:
        match change:
            case Migrate():
                self.machines.leaves(change.key, now_s)
            case Release():
                self.machines.give_back(change.machine, now_s)
            case Provision():
                if len(self.machines.every.open()) < self._most:
                    self.machines.ask(self.machines.groups[change.pool], change.jobs, now_s)

    def _wake(self, now_s: Seconds, *, wanted: bool) -> None:
        """Schedule the next decision that no other event brings."""
        here = self.machines.here()
        over = [
            ceil(one.paid_until_s - AHEAD_S) for one in here if one.paid_until_s - AHEAD_S > now_s
        ]
        again = [now_s + LOOK_S] if wanted and (here or self._agenda.heap) else []
        next_s = min([self.machines.next_s(now_s), *over, *again])
        if next_s < inf and (next_s < self._next_s or self._next_s <= now_s):
            self._next_s = next_s
            self._agenda.foresee(next_s, InstantKind.RENT, NOBODY, 0)
