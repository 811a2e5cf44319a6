"""Path relinking (Algorithm 2): from the best schedule, move by move, towards other good ones.

A move gives one job its shape in the target (kind and number of GPUs, or none), on a node of the
source with room. Moves are explored two deep: a move is worth its own gain, or that of the best
pair which it begins. The best move is made while its worth is positive, until the target is reached
or `most_moves` are made. The result is the best point of the path.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.policy.priced.greedy.mutable import Mutable, ScheduleShape, Undo

_LEAST = 1e-9  # of the score: smaller gains are the noise of doubles


class _Step(NamedTuple):
    """A move of one job to a shape; `node` None: no node has room for it now."""

    job: int
    shape: ScheduleShape | None
    node: int | None
    gain: float


def relink(source: Mutable, targets: list[Mutable], most_moves: int) -> int:
    """Move the source towards each target, in place; return how many moves were kept.

    A move may lose, for the sake of the next one. If the moves end between the two, the source goes
    back to the best point of its path. So it never ends worse than it began.
    """
    made = 0
    for target in targets:
        path: list[Undo] = []
        kept, most = 0, source.score
        for _ in range(most_moves):
            best = _best(source, _steps(source, target))
            if best is None or best.node is None:
                break
            path.append(source.move(best.job, best.node, best.shape)[1])
            if source.score > most:
                kept, most = len(path), source.score
        for undo in reversed(path[kept:]):
            source.undo(undo)
        made += kept
    return made


def _steps(source: Mutable, target: Mutable) -> list[_Step]:
    """All jobs with another shape in the target, whether the move is possible now or not."""
    found = []
    for job in range(len(source.node)):
        wanted, had = target.shape(job), source.shape(job)
        if wanted != had and (wanted is None or had is None or wanted[:2] != had[:2]):
            found.append(_tried(source, job, wanted))
    return found


def _tried(source: Mutable, job: int, shape: ScheduleShape | None) -> _Step:
    """The move of a job to a shape as things are now."""
    node = source.fits(job, shape)
    return _Step(job, shape, node, float("-inf") if node is None else source.gain(job, node, shape))


def _best(source: Mutable, steps: list[_Step]) -> _Step | None:
    """The move with the greatest worth, two deep; None: none improves the schedule."""
    best, worth = None, _LEAST * abs(source.score)
    for step in steps:
        if step.node is None:
            continue
        found = max(step.gain, step.gain + _second(source, steps, step))
        if found > worth:
            best, worth = step, found
    return best


def _second(source: Mutable, steps: list[_Step], first: _Step) -> float:
    """The largest gain of any other move after `first`.

    Moves that touch none of its nodes gain as much as before it.
    """
    assert first.node is not None
    _, before = source.move(first.job, first.node, first.shape)
    touched = before.touched
    best = float("-inf")
    for step in steps:
        if step.job == first.job:
            continue
        if step.node is None or step.node in touched or source.node[step.job] in touched:
            step = _tried(source, step.job, step.shape)
        best = max(best, step.gain)
    source.undo(before)
    return best
