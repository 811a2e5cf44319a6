"""The part of each rented machine that each attempt has: a row when it is placed there, and the
same one when it leaves.

So the cost of a job is exact whenever the master dies. The rows are written in the turns in which
GPUs change hands. The living rest follows from the stored attempts and machines.

An attempt comes to a machine once, when it is placed: rented nodes are closed, and nobody grows
onto a closed one (`policy.check`). So a stay is named by the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.machines.fleet import Fleet
from dlq_master.model.nodes.node import Node, NodePool
from dlq_master.model.usage.cost import Stay


@dataclass(slots=True)
class Occupancy:
    """`here`: of attempts that live; none of them is closed."""

    here: dict[AttemptKey, tuple[Stay, ...]] = field(default_factory=dict)

    def take(
        self,
        attempts: Iterable[Attempt],
        nodes: Mapping[NodeId, Node],
        machines: Fleet,
        now_s: float,
    ) -> Iterator[Stay]:
        """The rows to write for these attempts, as they are now."""
        for attempt in attempts:
            resized = attempt.resized_time_s is not None
            if attempt.live and (resized or attempt.key not in self.here):
                yield from self._changed(attempt, tuple(_of(attempt, nodes, machines)), now_s)
            elif not attempt.live and attempt.key in self.here:
                for one in self.here.pop(attempt.key):
                    yield one._replace(until_s=now_s)

    def _changed(self, attempt: Attempt, found: tuple[Stay, ...], now_s: float) -> Iterator[Stay]:
        """It has come, or goes on with other machines."""
        before = {one.request_id: one for one in self.here.pop(attempt.key, ())}
        now = {one.request_id: before.get(one.request_id, one) for one in found}
        if now:
            self.here[attempt.key] = tuple(now.values())
        yield from (it._replace(until_s=now_s) for name, it in before.items() if name not in now)
        yield from (it for name, it in now.items() if name not in before)


def _of(attempt: Attempt, nodes: Mapping[NodeId, Node], machines: Fleet) -> Iterator[Stay]:
    for node_id, mask in attempt.lease.allocation.slots:
        node = nodes.get(node_id)
        if node is None or node.pool is not NodePool.PRICED:
            continue
        machine = machines.of_node(node_id)
        if machine is not None:
            part = mask.bit_count() / len(node.gpus)
            yield Stay(machine.request_id, attempt.key, part, attempt.held_since_s)
