"""The expected rest of a job with an unknown run time, where earlier jobs needed about as much.

Levels of attained service are right for heavy tails: the more a job has had, the more it needs.
Where the services of completed jobs are alike, the opposite holds. A job that has had more is
nearer to its end, and to take its GPUs away helps nobody. Then the mean rest of earlier and
longer jobs is expected.

The services come from the history of the cluster (`model/estimates/history.py`). It lies in rows,
so a master that starts again knows the same. Agents and their silence have no part in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import fsum, sqrt

# Chosen on drawn workloads and on the fitted instances of benchmarks.papers.small.
REFRESH = 10  # the history says something new after so many completions
FEW = 10  # fewer services tell nothing
MOST = 500  # of more, as many evenly among them and the largest, so that a plan costs little
SPREAD = 0.75  # standard deviation over mean, above which services are not alike


class AlikeServices:
    """The services of completed jobs in GPU-seconds, the smallest first."""

    __slots__ = ("_beyond", "_service")

    def __init__(self, services_gpu_s: Sequence[float]) -> None:
        self._service = services_gpu_s
        # The sum of all from this place on.
        self._beyond = [*accumulate(reversed(services_gpu_s), initial=0.0)][::-1]

    def left_gpu_s(self, attained_gpu_s: float) -> float | None:
        """The mean rest of longer jobs. A job beyond all of them is taken to end now;
        one that has had twice as much is of another kind: None.
        """
        service = self._service
        at = bisect_right(service, attained_gpu_s)
        if at < len(service):
            return self._beyond[at] / (len(service) - at) - attained_gpu_s
        return 0.0 if attained_gpu_s < 2.0 * service[-1] else None


def alike(services_gpu_s: Sequence[float]) -> AlikeServices | None:
    """None: they are too few, or differ too much. They come the smallest first."""
    number = len(services_gpu_s)
    if number < FEW:
        return None
    chosen = services_gpu_s[:: -(number // (MOST + 1) + 1)][::-1]
    mean = fsum(chosen) / len(chosen)
    spread = sqrt(fsum([(one - mean) ** 2 for one in chosen]) / len(chosen))
    return AlikeServices(chosen) if spread <= SPREAD * mean else None
