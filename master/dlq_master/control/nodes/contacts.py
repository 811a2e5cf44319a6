"""When each node was last heard, and which nodes have been silent for the TTL.

Each node has one timer for the earliest end of its TTL. A message only stores its time and leaves
the timer alone. So a message costs one write, and a node one look at its timer in each TTL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlq_master.model.ids import NodeId
from dlq_master.model.timers import Timers


class Contacts:
    """Nodes by their ids, with the instant of their last message."""

    __slots__ = ("_looks", "_times_s")

    def __init__(self, node_ids: Iterable[NodeId] = (), now_s: float = 0.0) -> None:
        """The silence of these nodes starts now."""
        self._times_s: dict[NodeId, float] = {}
        self._looks: Timers[NodeId] = Timers()
        for node_id in node_ids:
            self.hear(node_id, now_s)

    def get(self, node_id: NodeId) -> float | None:
        """The instant of its last message; None: it is unknown."""
        return self._times_s.get(node_id)

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._times_s)

    def hear(self, node_id: NodeId, at_s: float) -> None:
        """Store the time of a message of this node, unless a later one is known."""
        before_s = self._times_s.get(node_id)
        if before_s is None:
            self._looks.set(node_id, at_s)
        if before_s is None or before_s < at_s:
            self._times_s[node_id] = at_s

    def shift(self, unheard_s: float) -> None:
        """Shorten every silence by `unheard_s`, in which no message could be read."""
        for node_id in self._times_s:
            self._times_s[node_id] += unheard_s

    def silent(self, now_s: float, ttl_s: float) -> list[NodeId]:
        """The nodes whose silence has just reached the TTL; each again after another TTL. Meanwhile
        the state of the node tells that it is silent.
        """
        found = []
        for node_id in self._looks.due(now_s):
            due_s = self._times_s[node_id] + ttl_s
            if due_s <= now_s:
                found.append(node_id)
            self._looks.set(node_id, due_s if due_s > now_s else now_s + ttl_s)
        return found

    def forget(self, node_id: NodeId) -> None:
        """The node is gone."""
        self._times_s.pop(node_id, None)
        self._looks.clear(node_id)
