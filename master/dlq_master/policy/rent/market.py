"""The input and the result of a decision when machines may be rented. Times in seconds, money in
the currency of prices; instants on the master's axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.nodes.node import CLOSED
from dlq_master.model.plan import Migrate
from dlq_master.policy.priced.catalogue import Floats, NodeType
from dlq_master.policy.rent.line import free_on


class MachineOffer(NamedTuple):
    """A pool: the hardware of one of its machines, and how many more of them may be rented now."""

    type: NodeType
    left: int


class Here(NamedTuple):
    """A machine that is rented. `ready_s`: when it takes work, or took it first; `free`: GPUs that
    nobody holds and nobody is to have; `jobs`: its jobs, present and planned.
    """

    request_id: str
    offer: int
    ready_s: float
    paid_until_s: float
    free: int
    jobs: tuple[int, ...] = ()


class Wanting(NamedTuple):
    """A job that waits, and costs `weight` for each second after `due_s`. `left_s[offer, g - 1]`:
    the remaining time on g GPUs of an offer; inf: it may not run so. `own_end_s`: when it is
    expected to be done on the cluster's own nodes; inf: never.
    """

    job: int
    due_s: float
    weight: float
    left_s: Floats
    own_end_s: float = inf


class Market(NamedTuple):
    """One decision. `spare_per_hour`: the most that more machines may cost in an hour; `spare`: the
    most that they may cost in all; inf: any.
    """

    now_s: float
    offers: tuple[MachineOffer, ...]
    here: tuple[Here, ...]
    wanting: tuple[Wanting, ...]
    spare_per_hour: float = inf
    spare: float = inf


class Put(NamedTuple):
    """A job is to run on so many GPUs of a machine: now if it is up, as soon as it is otherwise."""

    job: int
    request_id: str
    gpus: int


def here(
    cluster: Cluster, machine: Machine, offer: int, of: NodeType, coming: Sequence[Migrate] = ()
) -> Here:
    """A machine that boots or is up, as it is just now. `coming`: jobs that have been stopped to go
    on there.
    """
    node = cluster.nodes.get(machine.node_id)
    up = machine.state is MachineState.UP
    free = of.gpus if node is None or not up else free_on(cluster, node).bit_count()
    if node is not None and node.flags & CLOSED:
        free = 0  # people or rules keep new work off it
    ready_s = machine.asked_s + of.boot_s if machine.up_s is None else machine.up_s
    jobs = tuple(int(key.job_id) for key in cluster.attempts_on(machine.node_id))
    free -= sum([one.gpus for one in coming])
    jobs += tuple([int(one.key.job_id) for one in coming])
    return Here(machine.request_id, offer, ready_s, machine.paid_until_s, free, jobs)
