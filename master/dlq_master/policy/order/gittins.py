"""2D-Gittins, discretised: inside a level, the job that is likeliest to end soon for its service.

Tiresias, section 3.2.2 and appendix C. The index is exact at the samples and between them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import StrEnum
from itertools import accumulate, groupby, pairwise
from math import inf
from struct import Struct

from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import Had, Key, Learned

# Rows lie packed in memory: a lookup in 100,000 of them is paid in cache misses.

# A gap between two samples: its end, how many jobs end there, and how many do not end before. Then
# the step of the hull from there: how many jobs end within it, and the service of all until then.
# Last comes the number of the gap at its end (0: there is no later sample).
_GAP = Struct("=dqqqdq")
_GAP_AT, _GAP_SIZE = _GAP.unpack_from, _GAP.size
_STEP_AT, _STEP_OFFSET = Struct("=qdq").unpack_from, Struct("=dqq").size
# A sample: its service, how many jobs ended before and until then, and the service of all after it
# (a sum and its rounding error).
_SAMPLE = Struct("=dqqdd")
_SAMPLE_AT, _SAMPLE_SIZE = _SAMPLE.unpack_from, _SAMPLE.size


class ServiceDistribution:
    """The knowledge of the total service S of a job, in GPU-seconds: an empirical distribution.

    An index is how many of the jobs that got so far end within a quantum, over the service that
    they have until then: P(S - a <= quantum | S > a) / E[min(S - a, quantum) | S > a], both times
    their number. Counts are exact and service is summed from positive parts, so that nothing
    cancels out: the relative error stays below 1e-9 whatever the samples.
    """

    __slots__ = ("_ended", "_gaps", "_samples", "_service")

    def __init__(self, services_gpu_s: Iterable[float]) -> None:
        """ValueError names a service that is not a positive finite number. No service at all is
        legal: every index is then zero, so that jobs keep their order."""
        ordered = sorted(services_gpu_s)
        wrong = next((service for service in ordered if not 0 < service < inf), None)
        if wrong is not None:
            raise ValueError(
                f"a service of {wrong} GPU-seconds is no sample: want a positive number"
            )
        counts = [(float(value), sum(1 for _ in same)) for value, same in groupby(ordered)]
        # The leading point stands for a job that has attained nothing.
        self._service = array("d", [0.0, *(value for value, _ in counts)])
        self._ended = array("q", accumulate((count for _, count in counts), initial=0))
        alive = [len(ordered) - ended for ended in self._ended]
        spent = [(b - a) * n for (a, b), n in zip(pairwise(self._service), alive, strict=False)]
        spent.append(0.0)
        before = [0, *self._ended[:-1]]
        ends = [ended - earlier for ended, earlier in zip(self._ended, before, strict=True)]
        after = _sums_from_the_end(spent)
        samples = map(_SAMPLE.pack, self._service, before, self._ended, *after)
        self._samples = b"".join(samples)
        gaps = map(_GAP.pack, self._service, ends, [0, *alive[:-1]], *_hull(ends, spent))
        self._gaps = b"".join(gaps)

    def __len__(self) -> int:
        """How many distinct services are known."""
        return len(self._service) - 1

    def sup_index(self, attained_gpu_s: float) -> float:
        """The greatest index of all quanta, in 1 / GPU-second; zero beyond the longest service
        seen.

        The slope from here to the upper hull of the later samples (their counts over the service
        until then). The hull is walked from the next sample for as long as its steps are steeper.
        """
        service = self._service
        at = bisect_right(service, attained_gpu_s)
        if at >= len(service):
            return 0.0
        gaps = self._gaps
        ends: float
        spent: float
        end, ends, alive, more, lasts, following = _GAP_AT(gaps, at * _GAP_SIZE)
        spent = (end - attained_gpu_s) * alive
        while more * spent > ends * lasts:
            ends += more
            spent += lasts
            more, lasts, following = _STEP_AT(gaps, following * _GAP_SIZE + _STEP_OFFSET)
        return ends / spent

    def fixed_index(self, attained_gpu_s: float, quantum_gpu_s: float) -> float:
        """The index of one quantum, the discretised one, in 1 / GPU-second.

        Zero beyond the longest service seen.
        """
        service = self._service
        first = bisect_right(service, attained_gpu_s)
        last = bisect_right(service, attained_gpu_s + quantum_gpu_s, first) - 1
        if last < first:  # nobody ends in it
            return 0.0
        before: float
        ended: float
        spent: float
        samples = self._samples
        begin, before, _, after, rounding = _SAMPLE_AT(samples, first * _SAMPLE_SIZE)
        end, _, ended, later, rounded = _SAMPLE_AT(samples, last * _SAMPLE_SIZE)
        total = self._ended[-1]
        spent = (begin - attained_gpu_s) * (total - before)
        spent += (after - later) + (rounding - rounded)
        spent += (quantum_gpu_s - (end - attained_gpu_s)) * (total - ended)
        return (ended - before) / spent

    def quantile(self, share: float) -> float:
        """The smallest service that at least `share` of the jobs stay within; inf when none is
        known.
        """
        ended = self._ended
        at = bisect_left(ended, (min(share, 1.0) - 1e-12) * ended[-1], 1)
        return self._service[at] if at < len(ended) else inf


def _hull(ends: list[int], spent: list[float]) -> tuple[list[int], list[float], list[int]]:
    """The steps of the upper hulls of each point and all later ones: jobs, service, where to.

    `ends`: the jobs that end at each point; `spent`: the service of all between it and the next.
    From right to left, a step is joined to the next one for as long as that is steeper: O(n).
    """
    gained, lasts = [*ends[1:], 0], spent.copy()
    following = [0] * len(ends)  # the last point leads nowhere
    for at in range(len(ends) - 2, -1, -1):
        more, service, to = gained[at], lasts[at], at + 1
        while gained[to] * service > more * lasts[to]:
            more += gained[to]
            service += lasts[to]
            to = following[to]
        gained[at], lasts[at], following[at] = more, service, to
    return gained, lasts, following


def _sums_from_the_end(parts: list[float]) -> tuple[list[float], list[float]]:
    """sum(parts[i:]) for every i, as a number and what rounding took from it (two-sum, Knuth)."""
    high, low = 0.0, 0.0
    highs, lows = [], []
    for part in reversed(parts):
        total = high + part
        grown = total - high
        low += (high - (total - grown)) + (part - grown)
        high = total
        highs.append(high)
        lows.append(low)
    highs.reverse()
    lows.reverse()
    return highs, lows


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
