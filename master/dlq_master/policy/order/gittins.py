"""2D-Gittins, discretised: inside a level, who is likeliest to end soon for what it will take."""

from __future__ import annotations

from enum import StrEnum

from dlq_master.model.cluster import Cluster
from dlq_master.model.job import Job
from dlq_master.policy.order.by_key import Had, Key
from dlq_master.policy.order.gittins_index import ServiceDistribution


class Index(StrEnum):
    """Which quanta the index looks at."""

    FIXED = "fixed"  # one for each level: its upper bound
    SUP = "sup"  # the best of all


class Last(StrEnum):
    """The order of the last level, which has no upper bound."""

    FIFO = "fifo"
    INDEX = "index"


class Gittins:
    """The key of a job: its index, the highest first, then its submission (by time, then by number).

    Without a distribution, or in a last level that is FIFO, every key is the same: positions decide,
    as under LAS. `known` is given once and for all; None: what the cluster has learned by then.
    """

    __slots__ = ("_index", "_known", "_last", "_learned", "_memo", "_quantum_gpu_s")

    def __init__(
        self,
        *,
        index: Index = Index.FIXED,
        last: Last = Last.FIFO,
        quantum_gpu_s: float | None = None,
        known: ServiceDistribution | None = None,
    ) -> None:
        self._index = index
        self._last = last
        self._quantum_gpu_s = quantum_gpu_s  # None: the upper bound of the level
        self._known = known
        self._learned: tuple[float, ...] = ()
        self._memo = ServiceDistribution(())

    def __call__(self, cluster: Cluster) -> Key:
        """The key for one plan."""
        known = self._known or self._of(cluster)
        bounds = [self._quantum_gpu_s or bound for bound in cluster.ordering.thresholds]
        if self._last is Last.INDEX:
            bounds.append(bounds[-1])

        def key(job: Job, had: Had) -> tuple[float, ...]:
            if not len(known) or job.level >= len(bounds):
                return ()
            if self._index is Index.SUP:
                worth = known.sup_index(had.attained_gpu_s)
            else:
                worth = known.fixed_index(had.attained_gpu_s, bounds[job.level])
            return (-worth, job.submit_time_s, job.job_id)

        return key

    def _of(self, cluster: Cluster) -> ServiceDistribution:
        """What was learned, indexed once for as long as nothing new is."""
        learned = () if cluster.history is None else cluster.history.learned
        if learned is not self._learned:
            self._learned, self._memo = learned, ServiceDistribution(learned)
        return self._memo
