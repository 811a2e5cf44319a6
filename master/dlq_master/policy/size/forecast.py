"""When jobs end if each that ends leaves its GPUs to the others, by least remaining work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from dlq_master.model.ids import JobId
from dlq_master.policy.size.sizing import Candidate


def total_s(ordered: Sequence[Candidate], sizes: Mapping[JobId, int], left: int) -> float:
    """The sum of the seconds after which these jobs end, whose run times are known. Until the first
    end they have these sizes. Then they are always filled in the given order, as far as GPUs go,
    each job with its base. A running job that begins with another size pays for it. O(n log n).

    One deviation: a job that cannot take the last GPUs, because its next size is too large, does
    not leave them to those behind it.
    """
    return _Forecast(ordered, sizes, left).total_s


class _Forecast:
    def __init__(self, ordered: Sequence[Candidate], sizes: Mapping[JobId, int], left: int) -> None:
        self._jobs = ordered
        self._sizes = [sizes[one.job.job_id] for one in ordered]
        self._rates = [
            one.job.speed_on(size) for one, size in zip(ordered, self._sizes, strict=True)
        ]
        self._left_s = [
            one.left_s + (one.price_s * rate if one.held not in (0, size) else 0.0)
            for one, size, rate in zip(ordered, self._sizes, self._rates, strict=True)
        ]
        self._since_s = [0.0] * len(ordered)
        self._spare = left - sum(
            size - one.base for one, size in zip(ordered, self._sizes, strict=True)
        )
        self._first = 0  # nobody before it can grow
        self.total_s = self._run()

    def _run(self) -> float:
        ends = [
            (left_s / rate, at)
            for at, (left_s, rate) in enumerate(zip(self._left_s, self._rates, strict=True))
        ]
        heapify(ends)
        self._ends, self._over = ends, [False] * len(ends)
        total_s, filled = 0.0, False
        while ends:
            now_s, at = heappop(ends)
            if self._over[at] or now_s != self._end_s(at):
                continue
            self._over[at] = True
            total_s += now_s
            self._spare += self._sizes[at]
            if not filled:
                filled = True
                self._to_bases(now_s)
            self._fill(now_s)
        return total_s

    def _end_s(self, at: int) -> float:
        return self._since_s[at] + self._left_s[at] / self._rates[at]

    def _to_bases(self, now_s: float) -> None:
        """The first has ended: every job but the first in line gives back its first extra GPUs."""
        spare = self._spare
        for at, one in enumerate(self._jobs):
            if not self._over[at]:
                spare += self._sizes[at] - one.base
        for at, one in enumerate(self._jobs):
            if not self._over[at]:
                size = one.most(spare)
                spare -= size - one.base
                self._spare -= size - self._sizes[at]
                self._resize(at, size, now_s)

    def _fill(self, now_s: float) -> None:
        jobs = self._jobs
        while self._first < len(jobs):
            at, one = self._first, jobs[self._first]
            if not self._over[at]:
                if self._spare > 0:
                    size = one.most(self._sizes[at] - one.base + self._spare)
                    self._spare -= size - self._sizes[at]
                    self._resize(at, size, now_s)
                if self._sizes[at] < one.job.request.sizes[-1]:
                    return
            self._first += 1

    def _resize(self, at: int, size: int, now_s: float) -> None:
        if size == self._sizes[at]:
            return
        self._left_s[at] = max(
            0.0, self._left_s[at] - (now_s - self._since_s[at]) * self._rates[at]
        )
        self._since_s[at] = now_s
        self._sizes[at] = size
        self._rates[at] = self._jobs[at].job.speed_on(size)
        heappush(self._ends, (self._end_s(at), at))
