"""The same knapsack by the dynamic program of Algorithm 2, exactly (`knapsack` says what it is).

`best[g]` is the most that the groups so far are worth on g GPUs. Algorithm 2 joins one job at a
time. Here jobs whose steps have as many GPUs and fall in value are one group. Their steps are one
concave curve, and the best k of them are the k greatest. Such a curve is joined in
O(GPUs log GPUs): on more GPUs the best split leaves no fewer to the groups before. A job with other
steps is a group of its own, in O(GPUs) for each size. All of it is in arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.late import np
from dlq_master.policy.size.knapsack import Packed, with_unknown
from dlq_master.policy.size.sizing import Candidate

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAME = 1.0 + 1e-12  # values that are equal in exact numbers differ by less


class _Curve(NamedTuple):
    """The worth of numbers of GPUs, nothing first. Offer k is the first k of these steps (job's
    number, size) together, or, of one job `alone`, its k-th size.
    """

    weights: list[int]
    values: list[float]
    steps: list[tuple[int, int]]
    alone: bool

    def given(self, offer: int) -> list[tuple[int, int]]:
        """The size of each job by it; the last entry counts."""
        return self.steps[offer - 1 : offer] if self.alone and offer else self.steps[:offer]


def grow(candidates: Sequence[Candidate], left: int, short: bool) -> dict[JobId, int]:
    """The sizes that are worth most in all. Whose run time nobody knows gets what is left then, in
    line.
    """
    known = [one for one in candidates if one.left_s < inf]
    return with_unknown(candidates, packed(known, left).sizes, left)


def packed(candidates: Sequence[Candidate], left: int) -> Packed:
    """The optimum, which is its own bound."""
    curves = _curves(candidates, left)
    best = np.zeros(left + 1)
    taken = []
    for curve in curves:
        best, chosen = _joined(best, curve)
        taken.append(chosen)
    sizes = {one.job.job_id: one.base for one in candidates}
    gpus = int(np.argmax(best))
    value = float(best[gpus])
    for curve, chosen in zip(reversed(curves), reversed(taken), strict=True):
        offer = int(chosen[gpus])
        gpus -= curve.weights[offer]
        for number, size in curve.given(offer):
            sizes[candidates[number].job.job_id] = size
    return Packed(sizes, value, value)


def _joined(best: NDArray[np.float64], curve: _Curve) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """The best of both for every number of GPUs, and which offer of the curve that is."""
    chosen = np.zeros(len(best), dtype=np.min_scalar_type(len(curve.weights)))
    if len(curve.weights) == 1:
        return best, chosen
    return _with_one(best, curve, chosen) if curve.alone else _with_many(best, curve, chosen)


def _with_one(
    best: NDArray[np.float64], curve: _Curve, chosen: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Size by size."""
    made = best.copy()
    for offer in range(1, len(curve.weights)):
        weight = curve.weights[offer]
        offered = best[: len(best) - weight] + curve.values[offer]
        better = np.flatnonzero(offered > made[weight:])
        made[better + weight] = offered[better]
        chosen[better + weight] = offer
    return made, chosen


def _with_many(
    best: NDArray[np.float64], curve: _Curve, chosen: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """A concave curve: numbers of GPUs that are as far from a multiple of its step are apart."""
    made, values, width = best.copy(), np.array(curve.values), curve.weights[1]
    last = len(values) - 1
    for first in range(min(width, len(best))):
        rest = best[first::width]
        left = _splits(rest, values)
        offers = np.minimum(np.arange(len(rest)) - left, last)
        made[first::width] = rest[left] + values[offers]
        chosen[first::width] = offers
    return made, chosen


def _splits(rest: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """For every i the largest j at which rest[j] + values[i - j] is greatest. `values` is concave
    and goes on level, so that j does not fall with i: every second i lies between two known ones.
    """
    count, last = len(rest), len(values) - 1
    found = np.zeros(count, dtype=np.int64)
    step = 1 << count.bit_length()
    while step > 1:
        half = step // 2
        at = np.arange(half, count, step)
        low, above = found[at - half], at + half
        high = np.where(above < count, found[np.minimum(above, count - 1)], at)
        high = np.minimum(high, at)
        wide = high - low + 1
        ends = np.cumsum(wide)
        left = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - wide - low, wide)
        worth = rest[left] + values[np.minimum(np.repeat(at, wide) - left, last)]
        if len(at):
            most = np.flatnonzero(worth == np.repeat(np.maximum.reduceat(worth, ends - wide), wide))
            found[at] = left[most[np.searchsorted(most, ends) - 1]]
        step = half
    return found


def _curves(candidates: Sequence[Candidate], left: int) -> list[_Curve]:
    steps: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
    alone: list[_Curve] = []
    for number, one in enumerate(candidates):
        sizes = one.job.request.sizes
        base_s = one.takes_s(sizes[0])
        worths = [base_s - one.takes_s(size) for size in sizes]
        gains = [then - now for now, then in pairwise(worths)]
        widths = {then - now for now, then in pairwise(sizes)}
        if len(widths) == 1 and all(then <= now * _SAME for now, then in pairwise(gains)):
            falling = accumulate(gains, min)
            steps[widths.pop()] += [
                (-gain, number, size)
                for gain, size in zip(falling, sizes[1:], strict=True)
                if gain > 0.0
            ]
        else:
            offers = [
                (size - one.base, worth, (number, size))
                for size, worth in zip(sizes, worths, strict=True)
                if size - one.base <= left
            ]
            weights, values, given = zip(*offers, strict=True)
            alone.append(_Curve([*weights], [*values], [*given[1:]], alone=True))
    return [_merged(width, found, left) for width, found in sorted(steps.items())] + alone


def _merged(width: int, steps: list[tuple[float, int, int]], left: int) -> _Curve:
    """The greatest steps of one width, as far as there are GPUs. Of equal steps of a job the
    smaller size stands first."""
    steps.sort()
    most = steps[: left // width]
    return _Curve(
        weights=[width * count for count in range(len(most) + 1)],
        values=[0.0, *accumulate(-gain for gain, _, _ in most)],
        steps=[(number, size) for _, number, size in most],
        alone=False,
    )
