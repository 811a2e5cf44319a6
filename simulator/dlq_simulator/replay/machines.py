"""The machines rented in a replay: their nodes, their jobs and their costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.machines.fleet import Fleet
from dlq_master.model.machines.rented import Machine, MachineState, moved
from dlq_master.model.nodes.node import NodePool
from dlq_master.model.transitions import StopCause
from dlq_simulator.metrics import Billed
from dlq_simulator.replay.leaving import Leaving
from dlq_simulator.world.clusters import NodeGroup
from dlq_simulator.world.course import Seconds
from dlq_simulator.world.world import WorkRates, build_node

_HOUR_S = 3600.0
_THERE = (MachineState.STARTING, MachineState.UP)


class SimulatedStay(NamedTuple):
    """A number of GPUs of a machine that a job holds."""

    machine: Machine
    gpus: int
    begin_s: Seconds


class RentedMachines:
    """The machines. `labels`: those of the nodes of a group.

    `lead_s`: how long before the provider takes a machine back its jobs begin to save.
    """

    def __init__(
        self,
        groups: Sequence[NodeGroup],
        cluster: Cluster,
        rates: WorkRates,
        leaving: Leaving,
        labels: Callable[[NodeGroup], frozenset[str]],
        lead_s: Seconds,
    ) -> None:
        self.groups = {group.name: group for group in groups}
        self.every = Fleet(most_ended=math.inf)  # the total cost is printed at the end
        self.held_gpu_s: dict[JobId, dict[str, Seconds]] = {}  # by pool, of stays that are over
        self.speed_of: dict[JobId, Seconds] = {}  # of the last machine that it was on
        self._cluster, self._rates, self._leaving = cluster, rates, leaving
        self._labels, self._lead_s = labels, lead_s
        self._asked: Counter[str] = Counter()
        self._stays: dict[AttemptKey, SimulatedStay] = {}

    def here(self) -> list[Machine]:
        """The machines that boot or are up, in the order of their requests."""
        return [one for one in self.every.open() if one.state in _THERE]

    def left(self, group: NodeGroup, now_s: Seconds) -> int:
        """How many more machines of each kind may be rented."""
        if now_s >= group.until_s - self._lead_s:
            return 0
        return group.at_most - sum(one.pool == group.name for one in self.every.open())

    def ask(self, group: NodeGroup, jobs: tuple[int, ...], now_s: Seconds) -> None:
        """Request one more machine."""
        self._asked[group.name] += 1
        name = f"{group.name}-r{self._asked[group.name]:04d}"
        self.every.put(
            Machine(
                name,
                group.name,
                NodeId(name),
                float(group.price_per_hour or 0),
                now_s,
                group.minimum_billing_s,
                since_s=now_s,
                jobs=jobs,
            )
        )

    def come_and_go(self, now_s: Seconds) -> None:
        """Let booted machines take work, empty machines that the provider takes back, and remove
        empty ones.
        """
        for one in self.every.open():
            name, group = one.request_id, self.groups[one.pool]
            if one.state is MachineState.STARTING and now_s >= one.asked_s + group.boot_s:
                self.every.put(one := moved(one, MachineState.UP, now_s))
                self._rates.come(one.node_id, group.speed)
                node = build_node(one.node_id, group, self._labels(group))
                self._cluster.put_node(node._replace(pool=NodePool.PRICED))
            if one.state in _THERE and now_s >= group.until_s - self._lead_s:
                self.give_back(name, now_s)
            if self.every[name].state is MachineState.DRAINING:
                self._go_if_empty(name, now_s)

    def give_back(self, name: str, now_s: Seconds) -> None:
        """Give a machine back: no job starts there, its jobs save, and it goes once it is empty."""
        one = self.every[name]
        if one.state is MachineState.STARTING:
            self._end(one, now_s)
            return
        self.every.put(moved(one, MachineState.DRAINING, now_s))
        for key in sorted(self._cluster.attempts_on(one.node_id)):
            if self._cluster.attempts[key].stop_cause is None:
                drive.stop_attempt(self._cluster, key, StopCause.DRAIN, now_s)
                self.leaves(key, now_s)
        self._go_if_empty(name, now_s)

    def leaves(self, key: AttemptKey, now_s: Seconds) -> None:
        """A stopped attempt saves; its job then waits again, or starts on a machine."""
        self._leaving.drained(key, now_s)

    def note_stays(self, now_s: Seconds) -> None:
        """Note which jobs began or ended to hold GPUs of machines since the last call."""
        found = {
            key: SimulatedStay(one, self._cluster.attempts[key].lease.allocation.width, now_s)
            for one in self.every.open()
            for key in self._cluster.attempts_on(one.node_id)
        }
        for key in [key for key in self._stays if key not in found]:
            stay, by_pool = self._stays.pop(key), self.held_gpu_s.setdefault(key.job_id, {})
            held_s = stay.gpus * (now_s - stay.begin_s)
            by_pool[stay.machine.pool] = by_pool.get(stay.machine.pool, 0) + held_s
        for key, stay in found.items():
            self._stays.setdefault(key, stay)
            self.speed_of[key.job_id] = self.groups[stay.machine.pool].speed

    def next_s(self, now_s: Seconds) -> Seconds:
        """When the next machine has booted, or is taken back; inf: none."""
        booted = [
            one.asked_s + self.groups[one.pool].boot_s
            for one in self.every.open()
            if one.state is MachineState.STARTING
        ]
        taken = [self.groups[one.pool].until_s - self._lead_s for one in self.here()]
        return min((at_s for at_s in (*booted, *taken) if at_s > now_s), default=math.inf)

    def billed(self, beside: Billed, end_s: Seconds) -> Billed:
        """The bill, with the cluster's cost without the machines."""
        cost = sum(one.cost(end_s) for one in self.every.values())
        return beside._replace(
            gpu_seconds=beside.gpu_seconds + self._gpu_seconds(end_s),
            cost=(beside.cost or 0.0) + cost,
            machine_hours=self.hours(end_s),
        )

    def hours(self, now_s: Seconds) -> dict[str, float]:
        """Billed hours by pool, including empty pools."""
        found = dict.fromkeys(self.groups, 0.0)
        for one in self.every.values():
            until_s = now_s if one.end_s is None else one.end_s
            found[one.pool] += max(until_s - one.asked_s, one.minimum_s) / _HOUR_S
        return {name: round(hours, 6) for name, hours in found.items()}

    def _gpu_seconds(self, now_s: Seconds) -> Seconds:
        """GPU-seconds in which machines could do work."""
        return sum(
            self.groups[one.pool].gpus * ((now_s if one.end_s is None else one.end_s) - one.up_s)
            for one in self.every.values()
            if one.up_s is not None
        )

    def _go_if_empty(self, name: str, now_s: Seconds) -> None:
        one = self.every[name]
        if self._cluster.attempts_on(one.node_id):
            return
        self._cluster.remove_node(one.node_id)
        self._end(one, now_s)

    def _end(self, one: Machine, now_s: Seconds) -> None:
        stopping = moved(one, MachineState.STOPPING, now_s)
        self.every.put(moved(stopping, MachineState.AWAY, now_s))
