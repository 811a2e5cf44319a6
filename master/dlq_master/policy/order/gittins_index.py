"""The Gittins index of a job by the service it has attained, from the services of jobs that have ended.

Tiresias, section 3.2.2 and appendix C; between samples the index is exact, not looked up on a grid.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, groupby, pairwise
from math import inf

# Distinct services kept of a long history. A lookup is paid in cache misses: beyond this it costs more than
# a microsecond, and the error of F, 1/RESOLUTION, is below what any history can tell.
RESOLUTION = 4096

# A gap between two samples, one row: its begin, F and H there, 1 - F; F and H at its end, and the number of
# the next point of the hull from there (0: none, as point 0 is before every sample).
_Gap = tuple[float, float, float, float, float, float, int]


class ServiceDistribution:
    """What is known of the total service S of a job, in GPU-seconds: an empirical distribution.

    F(x) = P(S <= x) and H(x) = E[min(S, x)], the integral of 1 - F: the chance of an end within a
    quantum and the expected service until then are differences of the two.
    """

    __slots__ = ("_chance", "_gaps", "_service", "_spent")

    def __init__(self, services_gpu_s: Iterable[float], resolution: int = RESOLUTION) -> None:
        """A history of more than `resolution` distinct services keeps the means of as many equal parts.

        ValueError names a service that is not a positive finite number. No service at all is legal:
        every index is then zero, so that jobs keep their order.
        """
        ordered = sorted(services_gpu_s)
        wrong = next((service for service in ordered if not 0 < service < inf), None)
        if wrong is not None:
            raise ValueError(
                f"a service of {wrong} GPU-seconds is no sample: want a positive number"
            )
        counts = [(value, sum(1 for _ in same)) for value, same in groupby(ordered)]
        if len(counts) > resolution:
            counts = _parts(ordered, resolution)
        # The leading point stands for a job that has attained nothing.
        self._service = [0.0, *(value for value, _ in counts)]
        self._chance = [0.0, *(seen / len(ordered) for seen in accumulate(n for _, n in counts))]
        widths = (b - a for a, b in pairwise(self._service))
        spent = (width * (1.0 - seen) for width, seen in zip(widths, self._chance, strict=False))
        self._spent = [0.0, *accumulate(spent)]
        self._gaps = self._rows(_upper_hull(self._spent, self._chance))

    def __len__(self) -> int:
        """How many distinct services are kept."""
        return len(self._service) - 1

    def sup_index(self, attained_gpu_s: float) -> float:
        """max over every quantum of P(end within it) / E[service within it], in 1 / GPU-second.

        The slope from (H(a), F(a)) to the upper hull of the later samples. Zero beyond the longest
        service seen.
        """
        at = bisect_right(self._service, attained_gpu_s)
        gaps = self._gaps
        if at >= len(gaps):
            return 0.0
        begin, seen, used, alive, chance, spent, following = gaps[at]
        used += (attained_gpu_s - begin) * alive
        best: float = (chance - seen) / (spent - used)
        while following:
            _, _, _, _, chance, spent, following = gaps[following]
            slope = (chance - seen) / (spent - used)
            if slope < best:
                break
            best = slope
        return best

    def fixed_index(self, attained_gpu_s: float, quantum_gpu_s: float) -> float:
        """P(end within the quantum) / E[service within it], in 1 / GPU-second; the discretised index.

        Zero beyond the longest service seen.
        """
        seen, used = self._at(attained_gpu_s)
        if seen >= 1.0:
            return 0.0
        then, spent = self._at(attained_gpu_s + quantum_gpu_s)
        return (then - seen) / (spent - used)

    def quantile(self, share: float) -> float:
        """The smallest service that at least `share` of the jobs stay within; inf when none is known."""
        reached = (
            at for at, chance in enumerate(self._chance) if at and chance >= min(share, 1.0) - 1e-12
        )
        at = next(reached, None)
        return inf if at is None else self._service[at]

    def _at(self, service_gpu_s: float) -> tuple[float, float]:
        """F and H at one service."""
        at = bisect_right(self._service, service_gpu_s) - 1
        chance = self._chance[at]
        return chance, self._spent[at] + (service_gpu_s - self._service[at]) * (1.0 - chance)

    def _rows(self, following: list[int]) -> list[_Gap]:
        """The gaps by the number of their end; number 0 ends no gap and is never asked for."""
        service, chance, spent = self._service, self._chance, self._spent
        alive = [1.0 - seen for seen in chance]
        begins = zip(service, chance, spent, alive, strict=True)
        ends = zip(chance[1:], spent[1:], following[1:], strict=True)
        rows = [(*begin, *end) for begin, end in zip(begins, ends, strict=False)]
        return [(0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0), *rows]


def _parts(ordered: list[float], count: int) -> list[tuple[float, int]]:
    """Means and sizes of `count` nearly equal parts: the mean of all is kept exactly."""
    cuts = [len(ordered) * part // count for part in range(count + 1)]
    means = ((sum(ordered[a:b]) / (b - a), b - a) for a, b in pairwise(cuts))
    return [
        (value, sum(n for _, n in same)) for value, same in groupby(means, key=lambda row: row[0])
    ]


def _upper_hull(xs: list[float], ys: list[float]) -> list[int]:
    """For each point its next on the upper hull of itself and all later points, 0 for the last; O(n)."""
    following = [0] * len(xs)
    for at in range(len(xs) - 2, -1, -1):
        x, y = xs[at], ys[at]
        near = at + 1
        far = following[near]
        while far and (ys[far] - y) * (xs[near] - x) >= (ys[near] - y) * (xs[far] - x):
            near, far = far, following[far]
        following[at] = near
    return following
