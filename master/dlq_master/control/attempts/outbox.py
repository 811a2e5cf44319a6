"""Commands that their nodes have not taken yet, by what they are looked up by. All costs are of
what is found, never of what waits: thousands may wait for nodes that are silent."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.store.batch import Intention

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

    def of_node(self, node_id: NodeId) -> tuple[Intention, ...]:
        """The address of a node."""
        return tuple(self._of_node.get(node_id, {}).values())


def _remove(index: dict[Name, dict[int, Intention]], name: Name, sequence: int) -> None:
    rows = index[name]
    del rows[sequence]
    if not rows:
        del index[name]
