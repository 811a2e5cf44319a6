"""Elastic jobs are filled one after the other, each as far as it can grow, the one with the nearest
end first.

`least_work` goes by remaining work, in GPU-seconds, since that is how long a job keeps others
waiting for its GPUs however wide it is. Whose run time nobody knows comes last.

`rollout` tries several shares. It takes the one with the soonest ends on average, if each job that
ends then left its GPUs to the others by least work. This is one step of improvement on
`least_work`, and never worse than it in that forecast. Tried are Aryl's knapsack, the least time,
the least work, what the jobs hold now, and, of few jobs, each of them first. Another size costs
whoever runs its interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf

from dlq_master.model.ids import JobId
from dlq_master.policy.size import forecast, knapsack
from dlq_master.policy.size.sizing import Candidate

Sizes = dict[JobId, int]
_FEW = 8  # jobs, each of which is tried first


def least_work(candidates: Sequence[Candidate], left: int, short: bool) -> Sizes:
    """Full, one after the other, by remaining work."""
    return filled(_by(candidates, work_gpu_s), left)


def rollout(candidates: Sequence[Candidate], left: int, short: bool) -> Sizes:
    """The best of several first steps. O(n log n) for each."""
    known = [one for one in candidates if one.left_s < inf]
    if not known or left <= 0:
        return filled(candidates, left)
    ordered = _by(known, work_gpu_s)
    tried: list[Sizes] = []
    for sizes in _shares(known, ordered, left):
        if sizes is not None and sizes not in tried:
            tried.append(sizes)
    best = tried[0]
    if len(tried) > 1:
        best = min(tried, key=lambda sizes: forecast.total_s(ordered, sizes, left))
    return knapsack.with_unknown(candidates, dict(best), left)


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
    if len(known) <= _FEW:
        for one in ordered:
            yield filled([one, *(other for other in ordered if other is not one)], left)


def _held(ordered: Sequence[Candidate], left: int) -> Sizes | None:
    """Their GPUs, and more by least work; None: there are not as many GPUs any more."""
    sizes = {one.job.job_id: max(one.base, one.held) for one in ordered}
    left -= sum(sizes[one.job.job_id] - one.base for one in ordered)
    if left < 0 or not any(one.held for one in ordered):
        return None
    if any(sizes[one.job.job_id] not in one.job.request.sizes for one in ordered):
        return None
    return filled(ordered, left, sizes)
