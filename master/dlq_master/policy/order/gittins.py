"""2D-Gittins, discretised: inside a level, the job that is likeliest to end soon for its
service.
"""

from __future__ import annotations

from enum import StrEnum

from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import Had, Key, Learned
from dlq_master.policy.order.gittins_index import ServiceDistribution


class Index(StrEnum):
    """The quanta of the index."""

    FIXED = "fixed"  # one for each level: its upper bound
    SUP = "sup"  # the best of all


class Last(StrEnum):
    """The order of the last level, which has no upper bound."""

    FIFO = "fifo"
    INDEX = "index"


class Gittins:
    """The key of a job: its index, the highest first, then its submission (by time, then by
    number).

    Without a distribution, or in a last level that is FIFO, every key is the same: positions
    decide, as under LAS. `known` is given once and for all; None: the services that the cluster has
    learned by then.
    """

    __slots__ = ("_index", "_known", "_last", "_quantum_gpu_s")

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

    def __call__(self, learned: Learned) -> Key:
        """The key for as long as nothing else is learned; the distribution is indexed when a job
        asks.
        """
        bounds = [self._quantum_gpu_s or bound for bound in learned.thresholds]
        if self._last is Last.INDEX:
            bounds.append(bounds[-1])
        known = self._known

        def key(job: Job, had: Had) -> tuple[float, ...]:
            nonlocal known
            if known is None:
                known = ServiceDistribution(learned.services_gpu_s)
            if not len(known) or job.level >= len(bounds):
                return ()
            if self._index is Index.SUP:
                worth = known.sup_index(had.attained_gpu_s)
            else:
                worth = known.fixed_index(had.attained_gpu_s, bounds[job.level])
            return (-worth, job.submit_time_s, job.job_id)

        return key
