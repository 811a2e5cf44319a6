"""The speed of a job on its GPUs: seconds of work done per second.

Speed 1 is the reference of a trace's `duration_s`. It is the job's own number of GPUs, on as few
nodes as hold them, of a type with speed 1. Every other speed comes from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlq_common.slowdown import OVERLAP, SKEW_RHO
from dlq_simulator.workload import TraceJob

Number = int | float

# Aryl 7.2: the share of the ideal throughput that each worker beyond the middle of its range costs.
_ARYL_LOSS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The effect of placement and size on the speed of a job.

    `slowdown`: whether spreading costs anything. `overlap`: 1 (none) to inf (perfect) of computing
    and communication. `skew_rho`: rho per skew of jobs without a rho. `efficiency`: of each
    doubling of the workers, 0.5 (no gain) to 1 (linear). None: linear up to the middle of the job's
    range, then 10 % lost for each further worker (Aryl 7.2). `mixed`: the share of the summed speed
    that a job on several kinds of GPUs gets.
    """

    slowdown: bool = True
    overlap: float = OVERLAP
    skew_rho: float = SKEW_RHO
    efficiency: float | None = 1.0
    mixed: float = 0.7

    def rate(self, job: TraceJob, gpus: int, *, spread: bool = False, of_gpu: Number = 1) -> Number:
        """The speed on `gpus` GPUs of relative speed `of_gpu`; exactly 1 on the reference.

        `spread`: on more nodes than the width needs.
        """
        rate = of_gpu
        if gpus != job.num_gpus:
            rate *= self._gain(job, gpus)
        if spread and self.slowdown:
            rate /= self.slowed(job)
        return rate

    def slowed(self, job: TraceJob) -> float:
        """The factor by which spreading lengthens the run: (1 + rho^g)^(1/g).

        rho is the job's communication time over its computing time, and g is `overlap`. The factor
        is between max(1, rho) and 1 + rho.
        """
        rho = job.rho if job.rho is not None else (job.skew or 0.0) * self.skew_rho
        if math.isinf(self.overlap):
            return max(1.0, rho)
        low, high = sorted((1.0, rho))  # so that no power overflows
        return float(high * (1.0 + (low / high) ** self.overlap) ** (1.0 / self.overlap))

    def _gain(self, job: TraceJob, gpus: int) -> float:
        """The throughput on this number of GPUs, relative to its own number."""
        if self.efficiency is None:
            return _beyond_middle(job, gpus) / _beyond_middle(job, job.num_gpus)
        # Each doubling of the workers multiplies the throughput by 2 x efficiency.
        return float((gpus / job.num_gpus) ** (1.0 + math.log2(self.efficiency)))


def _beyond_middle(job: TraceJob, gpus: int) -> float:
    """Aryl's imperfect throughput, in workers; at least that of the middle."""
    each = job.gpus_per_worker or 1
    workers, own = gpus / each, job.num_gpus / each
    middle = ((job.min_workers or own) + (job.max_workers or own)) / 2
    if workers <= middle:
        return workers
    return max(middle, workers * (1.0 - _ARYL_LOSS * (workers - middle)))
