"""Checks a plan's changes of rented machines: rented, given back, and migrated to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.plan import Migrate, Provision, Release
from dlq_master.model.view import View
from dlq_master.policy.policy import Policy


class MachinesBook:
    """The machines and the money that the plan's earlier changes have used up."""

    __slots__ = ("_asked", "_coming", "_per_hour", "_policy", "_spare", "_view")

    def __init__(self, view: View, policy: Policy) -> None:
        self._view, self._policy = view, policy
        self._asked: Counter[str] = Counter()  # by pool
        self._coming: set[str] = set()  # machines to which an earlier change sends a job
        self._per_hour, self._spare = view.machines.spare_per_hour, view.machines.spare

    def fault(self, change: Migrate | Provision | Release, taken: Mapping[NodeId, int]) -> str:
        """The fault in the change; empty: none, and it counts from now on. `taken`: GPUs that
        earlier changes give away.
        """
        match change:
            case Migrate():
                self._coming.add(change.machine)
                able = self._view.machines.takes_work(self._view.cluster.nodes, change.machine)
                return "" if able else f"machine {change.machine} takes no work"
            case Provision():
                return self._provision(change)
            case Release():
                return self._release(change.machine, taken)

    def _provision(self, change: Provision) -> str:
        price = self._policy.rent.prices.get(change.pool)
        if price is None:
            return f"policy {self._policy.name} rents nothing from pool {change.pool}"
        jobs, machines = self._view.cluster.jobs, self._view.machines
        missing = [job for job in change.jobs if JobId(job) not in jobs or jobs[JobId(job)].ended]
        if missing or not change.jobs:
            return f"jobs {missing} need no machine"
        self._asked[change.pool] += 1
        if self._asked[change.pool] > machines.left.get(change.pool, 0):
            return f"no more machines of pool {change.pool} may be rented"
        if price > self._per_hour or change.costs > self._spare:
            return "it would cost more than may be spent"
        self._per_hour, self._spare = self._per_hour - price, self._spare - change.costs
        return ""

    def _release(self, name: str, taken: Mapping[NodeId, int]) -> str:
        machine, cluster = self._view.machines.here.get(name), self._view.cluster
        if machine is None:
            return f"there is no machine {name} to give back"
        used = machine.node_id in taken or cluster.attempts_on(machine.node_id)
        if used or name in self._coming or cluster.migrations.to(name):
            return f"machine {name} is used"
        return ""
