"""The loop's state of attempts beside the cluster: commands on their way to agents, ports, and
attempts that are not settled yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from dlq_master.control.attempts.bookkeeping import Bookkeeping
from dlq_master.control.attempts.idleness import Idleness
from dlq_master.control.attempts.stalls import Stalls
from dlq_master.control.attempts.stragglers import Stragglers
from dlq_master.model.attempts import suspending
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.store.batch import Intention, Loaded
from dlq_master.store.tables.accounts import LEVELS

Name = TypeVar("Name")


class Outbox(Mapping[int, Intention]):
    """Sequence -> intention, in the order in which they were meant."""

    def __init__(self, rows: Iterable[Intention] = ()) -> None:
        self._rows: dict[int, Intention] = {}
        self._of_attempt: dict[AttemptKey, dict[int, Intention]] = {}
        self._of_node: dict[NodeId, dict[int, Intention]] = {}
        for row in rows:
            self.put(row)

    def __getitem__(self, sequence: int) -> Intention:
        return self._rows[sequence]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, row: Intention) -> None:
        """Add a command; its sequence is the highest."""
        self._rows[row.sequence] = row
        self._of_attempt.setdefault(row.key, {})[row.sequence] = row
        self._of_node.setdefault(row.node_id, {})[row.sequence] = row

    def drop(self, sequence: int) -> bool:
        """Let go of a command; False when it is gone already."""
        row = self._rows.pop(sequence, None)
        if row is None:
            return False
        _remove(self._of_attempt, row.key, sequence)
        _remove(self._of_node, row.node_id, sequence)
        return True

    def of_rank(self, key: AttemptKey, rank: int) -> tuple[Intention, ...]:
        """The address of a rank of an attempt, on any node."""
        rows = self._of_attempt.get(key, {}).values()
        return tuple(row for row in rows if row.node_rank == rank)

    def count_of_node(self, node_id: NodeId) -> int:
        """How many are addressed to a node."""
        return len(self._of_node.get(node_id, ()))

    def most_of_a_rank(self, key: AttemptKey, kind: str) -> int:
        """The largest number of open commands of this kind for one rank of an attempt."""
        rows = self._of_attempt.get(key, {}).values()
        counts = Counter(row.node_rank for row in rows if row.kind == kind)
        return max(counts.values(), default=0)

    def of_node(self, node_id: NodeId) -> tuple[Intention, ...]:
        """The address of a node."""
        return tuple(self._of_node.get(node_id, {}).values())


def _remove(index: dict[Name, dict[int, Intention]], name: Name, sequence: int) -> None:
    rows = index[name]
    del rows[sequence]
    if not rows:
        del index[name]


@dataclass(slots=True)
class AttemptsState:
    """`ports`: the attempt to which each port of a rendezvous was last given. `preparing`: the last
    report of each rank that is being prepared; never stored.
    """

    bookkeeping: Bookkeeping  # GPU time held, by account
    idleness: Idleness = field(default_factory=Idleness)
    stalls: Stalls = field(default_factory=lambda: Stalls(None))
    stragglers: Stragglers = field(default_factory=Stragglers)
    outbox: Outbox = field(default_factory=Outbox)
    next_command: int = 1
    ports: dict[int, AttemptKey] = field(default_factory=dict)
    next_port: int = 0
    starting: set[AttemptKey] = field(default_factory=set)  # gangs that do not run yet
    resizing: set[AttemptKey] = field(default_factory=set)  # ranks are being added or removed
    suspended: set[AttemptKey] = field(default_factory=set)  # off their GPUs, or on the way
    unheard: dict[AttemptKey, float] = field(
        default_factory=dict
    )  # of these: when a node was, last; of one that comes back after a refusal: since when
    preparing: dict[tuple[AttemptKey, int], str] = field(default_factory=dict)

    def restore(self, loaded: Loaded, cluster: Cluster, now_s: float) -> None:
        """Take over what is stored, and work out the rest from the attempts of `cluster`."""
        for attempt in loaded.attempts:
            if attempt.master_port is not None:
                self.ports[attempt.master_port] = attempt.key
            if attempt.waits_for_others and attempt.live and attempt.started_time_s is None:
                self.starting.add(attempt.key)
        living = cluster.attempts.values()
        self.resizing = {attempt.key for attempt in living if attempt.resize is not None}
        self.suspended = {attempt.key for attempt in living if suspending.is_open(attempt)}
        self.outbox = Outbox(loaded.intentions)
        self.next_command = max(self.outbox, default=0) + 1
        self.bookkeeping = Bookkeeping.begin(cluster, loaded.meta.get(LEVELS), now_s)
