"""The same knapsack, solved exactly (`knapsack` says what it is).

For jobs whose steps have as many GPUs and fall in value, the steps are one concave curve. The best
k of them are the k greatest. The few curves are then joined in (max, +), and so is every job with
other steps as a curve of its own. O(GPUs^2) for each curve, in arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.late import np
from dlq_master.policy.size.knapsack import Packed, with_unknown, worth_s
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


def _joined(
    best: NDArray[np.float64], curve: _Curve
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The best of both for every number of GPUs, and which offer of the curve that is."""
    made = best.copy()
    chosen = np.zeros(len(best), dtype=np.int64)
    for offer in range(1, len(curve.weights)):
        weight = curve.weights[offer]
        offered = best[: len(best) - weight] + curve.values[offer]
        better = np.flatnonzero(offered > made[weight:])
        made[better + weight] = offered[better]
        chosen[better + weight] = offer
    return made, chosen


def _curves(candidates: Sequence[Candidate], left: int) -> list[_Curve]:
    steps: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
    alone: list[_Curve] = []
    for number, one in enumerate(candidates):
        sizes = one.job.request.sizes
        worths = [worth_s(one, size) for size in sizes]
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
