"""The role of a rank on a node for this master; no other module decides it.

It follows from the living attempts alone: their placement, their fences, their known ends, and
whether they are stopping. Welcomes, commands, reports and heartbeats (`wanted.py`, `dispatch.py`,
`reports.py`, `nodes.py`) all go by it.
"""

from collections.abc import Iterator
from enum import Enum

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, NodeId


class RankRole(Enum):
    """The role of a rank on that node."""

    RUNS = "runs"  # it shall run there
    LEAVES = "leaves"  # its attempt is on its way out
    GONE = "gone"  # of a living attempt, and it has ended there
    STRAY = "stray"  # lost, ended, or placed elsewhere since: it runs for nobody and must end
    ORPHAN = "orphan"  # of a job that this database does not know: an operator decides

    @property
    def ours(self) -> bool:
        """A living attempt has, or had, it there."""
        return self in (RankRole.RUNS, RankRole.LEAVES, RankRole.GONE)


def role_of(
    cluster: Cluster, node_id: NodeId, key: AttemptKey, epoch: int, rank: int
) -> RankRole | None:
    """The rank that a living attempt has placed there; None: no living one has placed it there.

    `epoch` and `key` are the fence of its launch.
    """
    attempt = cluster.attempts.get(key)
    if attempt is None or attempt.epoch != epoch or not 0 <= rank < len(attempt.ranks):
        return None
    status = attempt.ranks[rank]
    if status.node_id != node_id:
        return None
    if status.gone:
        return RankRole.STRAY if status.lost else RankRole.GONE
    stays = attempt.stop_cause is None and not status.leaving
    return RankRole.RUNS if stays else RankRole.LEAVES


def ranks_on(cluster: Cluster, node_id: NodeId) -> Iterator[tuple[Attempt, int, RankRole]]:
    """Every rank that a living attempt has on the node and that is not known to have ended."""
    for key in cluster.attempts_on(node_id):
        attempt = cluster.attempts[key]
        for rank in range(len(attempt.ranks)):
            found = role_of(cluster, node_id, key, attempt.epoch, rank)
            if found in (RankRole.RUNS, RankRole.LEAVES):
                yield attempt, rank, found
