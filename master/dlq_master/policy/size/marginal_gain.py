"""Apathetic future share (AFS, Hwang et al., NSDI 2021, section 4): GPUs one step after the other,
each to the job that wins the comparison with every other one.

Of two jobs the one that would end first on what it has is a, the other b. If the step goes to a, a
ends sooner, and b has the step from then on. If it goes to b, b has it throughout. The sum of the
two completion times is smaller with a under one condition: (p_a' - p_a) / p_a > (p_b' - p_b) /
p_b'. Here p is the throughput now and p' that with the step. A tie goes to a.

The paper's step is one GPU, and its scan over the jobs lets the winner of each comparison meet the
next. The comparison is not transitive, and the winner may depend on the order. Here a step goes to
the job's next allowed size, and the gain is counted for each GPU of it. The comparisons are those
of a knock-out tournament, so that a step costs O(log n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.policy.size.sizing import Candidate

_SAME = 1.0 + 1e-9  # ratios of doubles that are equal in exact numbers differ by less
_OUT = -1


class _Step(NamedTuple):
    """The gain of the next step of a job."""

    size: int  # that it would have
    gpus: int
    ends_s: float  # without it
    first: float  # (p' - p) / p for each GPU: its claim if it ends first
    last: float  # (p' - p) / p' for each GPU: its claim if the other ends first


def grow(candidates: Sequence[Candidate], left: int, short: bool) -> dict[JobId, int]:
    """Steps to the winners while there are GPUs for them. O((n + steps) log n)."""
    sizes = {candidate.job.job_id: candidate.base for candidate in candidates}
    steps = [_step(candidate, candidate.base) for candidate in candidates]
    contest = _Tournament(steps)
    while (winner := contest.winner) != _OUT:
        step, candidate = steps[winner], candidates[winner]
        if step is None:
            break
        following = None
        if step.gpus <= left:
            left -= step.gpus
            sizes[candidate.job.job_id] = step.size
            following = _step(candidate, step.size)
        contest.replace(winner, following)
    return sizes


def _step(candidate: Candidate, size: int) -> _Step | None:
    larger = candidate.next_size(size)
    if larger is None:
        return None
    now, then = candidate.job.speed_on(size), candidate.job.speed_on(larger)
    gain = (then - now) / (larger - size)
    if gain <= 0.0:
        return None  # it would gain nothing from this or, with falling gains, any further step
    return _Step(larger, larger - size, candidate.left_s / now, gain / now, gain / then)


class _Tournament:
    """The winner among all that still have a step. Of two that end at the same time the first in
    line counts as ending first.
    """

    def __init__(self, steps: list[_Step | None]) -> None:
        self._steps = steps
        self._leaves = 1 << max(0, len(steps) - 1).bit_length()
        self._won = [_OUT] * (2 * self._leaves)
        for at, step in enumerate(steps):
            self._won[self._leaves + at] = at if step is not None else _OUT
        for node in range(self._leaves - 1, 0, -1):
            self._won[node] = self._better(self._won[2 * node], self._won[2 * node + 1])

    @property
    def winner(self) -> int:
        """Its number; _OUT: nobody has a step left."""
        return self._won[1]

    def replace(self, at: int, step: _Step | None) -> None:
        """Its next step is another."""
        self._steps[at] = step
        node = self._leaves + at
        self._won[node] = at if step is not None else _OUT
        while node > 1:
            node //= 2
            self._won[node] = self._better(self._won[2 * node], self._won[2 * node + 1])

    def _better(self, one: int, other: int) -> int:
        if one == _OUT or other == _OUT:
            return max(one, other)
        first, last = self._steps[one], self._steps[other]
        assert first is not None
        assert last is not None
        if last.ends_s < first.ends_s:
            one, other, first, last = other, one, last, first
        return one if first.first * _SAME >= last.last else other
