"""In which unit quotas and limits of teams count GPUs.

An operator chooses between two (`quota_unit`):

- **gpus**, the default: a device counts 1, whatever its type is;
- **normalised**: a device counts the declared speed of its type (`TypeSpeeds`). A quota of 8 then
  holds 8 GPUs of speed 1, or 32 of speed 0.25.

A running job counts by the speed that its GPUs had when it was placed. A waiting job counts by the
fastest type that it may get, so that no start exceeds a limit. A gang on several types counts by
its slowest GPU.
"""

from __future__ import annotations

from enum import StrEnum
from math import floor
from typing import Final

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Job
from dlq_master.model.resources import Shape


class QuotaUnit(StrEnum):
    """The unit of `--gpus` and `--limit` of teams and their members."""

    GPUS = "gpus"
    NORMALISED = "normalised"

    def weight(self, attempt: Attempt | None) -> float:
        """The count of each GPU of an attempt."""
        if self is QuotaUnit.GPUS or attempt is None:
            return 1.0
        return _counted(attempt.speed)

    def weight_of(self, cluster: Cluster, shape: Shape) -> float:
        """The most that a GPU counts for a waiting job of this shape."""
        speeds = cluster.speeds
        if self is QuotaUnit.GPUS or not speeds.declared:
            return 1.0
        may_be = filter(shape.may_be, cluster.capacity.gpu_types)
        return _counted(max(map(speeds.of, may_be), default=1.0))

    def held(self, job: Job, attempt: Attempt) -> float:
        """All GPUs of an attempt, or those to which it comes back; a job without GPUs holds
        none.
        """
        gpus = 0 if job.request.without_gpus else attempt.place.width
        return gpus * self.weight(attempt)

    def asked(self, cluster: Cluster, job: Job) -> float:
        """The fewest GPUs of a waiting job."""
        return job.request.real_base * self.weight_of(cluster, job.request.shape)


_PARTS: Final = 2.0**30  # of a GPU


def _counted(speed: float) -> float:
    """The speed in whole parts of a GPU, whose sums are exact. A quota of 2 holds twenty GPUs of
    speed 0.1, though 0.1 taken twenty times from 2.0 falls below 0.
    """
    return floor(speed * _PARTS) / _PARTS
