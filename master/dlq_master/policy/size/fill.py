"""Elastic jobs are filled one after the other, each as far as it can grow, the one with the nearest
end first.

`least_work` goes by remaining work, in GPU-seconds, since that is how long a job keeps others
waiting for its GPUs however wide it is. Whose run time nobody knows comes last.

`rollout` tries several shares. It takes the one with the soonest ends on average, if each job that
ends then left its GPUs to the others by least work. This is one step of improvement on
`least_work`, and never worse than it in that forecast. Tried are Aryl's knapsack, the least time,
the least work, what the jobs hold now, and, of few jobs, each of them first. All these fill one job
before the next, which suits linear scaling. So where some job gains less and less, the shares of
AFS are tried too. Another size costs a running job its interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf

from dlq_master.model.ids import JobId
from dlq_master.policy.size import knapsack, marginal_gain
from dlq_master.policy.size.sizing import Candidate

Sizes = dict[JobId, int]
_FEW = 8  # jobs, each of which is tried first
_LINEAR = 0.99  # of linear scaling


def least_work(candidates: Sequence[Candidate], left: int, short: bool) -> Sizes:
    """Full, one after the other, by remaining work."""
    return filled(_by(candidates, work_gpu_s), left)


def rollout(candidates: Sequence[Candidate], left: int, short: bool) -> Sizes:
    """The best of several first steps. O(n log n) for each."""
    known = [one for one in candidates if one.left_s < inf]
    if not known or left <= 0:
        return filled(candidates, left)
    if _enough_for_all(candidates, left):
        return {one.job.job_id: one.job.request.sizes[-1] for one in candidates}
    ordered = _by(known, work_gpu_s)
    tried: list[Sizes] = []
    for sizes in _shares(known, ordered, left):
        if sizes is not None and sizes not in tried:
            tried.append(sizes)
    best = tried[0]
    if len(tried) > 1:
        best = min(tried, key=lambda sizes: total_s(ordered, sizes, left))
    return knapsack.with_unknown(candidates, dict(best), left)


def _enough_for_all(candidates: Sequence[Candidate], left: int) -> bool:
    """Whether each can have its largest size, and is fastest on it: every share is this one."""
    for one in candidates:
        job, sizes = one.job, one.job.request.sizes or (one.base,)
        left -= sizes[-1] - sizes[0]
        if left < 0 or one.left_s <= 0.0:
            return False
        fastest = job.speed_on(sizes[-1])
        if job.speeds and any(job.speed_on(size) >= fastest for size in sizes[:-1]):
            return False
    return True


def filled(ordered: Sequence[Candidate], left: int, sizes: Sizes | None = None) -> Sizes:
    """From their bases, or from these sizes, in this order; `left`: GPUs beyond those."""
    made = {} if sizes is None else dict(sizes)
    for one in ordered:
        job_id, base = one.job.job_id, one.base
        now = made.get(job_id, base)
        size = max(now, one.most(now - base + left)) if left > 0 else now
        left -= size - now
        made[job_id] = size
    return made


def work_gpu_s(candidate: Candidate) -> float:
    """Its remaining time, on the GPUs that it asked for."""
    return candidate.left_s * candidate.job.request.gpus


def _least_s(candidate: Candidate) -> float:
    return candidate.takes_s(candidate.job.request.sizes[-1])


def _by(candidates: Sequence[Candidate], key: Callable[[Candidate], float]) -> list[Candidate]:
    return sorted(candidates, key=key)  # of equals, the first in line


def _shares(
    known: Sequence[Candidate], ordered: Sequence[Candidate], left: int
) -> Iterator[Sizes | None]:
    """The candidates; of equally good ones the first is taken."""
    yield _held(ordered, left)
    yield filled(ordered, left)
    yield knapsack.packed(known, left).sizes
    yield filled(_by(known, _least_s), left)
    if any(map(_saturates, known)):
        yield marginal_gain.grow(known, left, False)
    if len(known) <= _FEW:
        for one in ordered:
            yield filled([one, *(other for other in ordered if other is not one)], left)


def _saturates(candidate: Candidate) -> bool:
    """Whether its last GPUs gain it less than its first."""
    job, most, base = candidate.job, candidate.job.request.sizes[-1], candidate.base
    return bool(job.speeds) and job.speed_on(most) < _LINEAR * job.speed_on(base) * most / base


def _held(ordered: Sequence[Candidate], left: int) -> Sizes | None:
    """Their GPUs, and more by least work; None: there are not as many GPUs any more."""
    sizes = {one.job.job_id: max(one.base, one.held) for one in ordered}
    left -= sum(sizes[one.job.job_id] - one.base for one in ordered)
    if left < 0 or not any(one.held for one in ordered):
        return None
    if any(sizes[one.job.job_id] not in one.job.request.sizes for one in ordered):
        return None
    return filled(ordered, left, sizes)


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
