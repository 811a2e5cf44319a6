"""Path relinking (Algorithm 2): from the best schedule, move by move, towards the other good ones.

A move gives one job its shape in the target (kind and number of GPUs, or none). It goes on a node
that has room for it in the source. A move is explored two steps deep: it is worth its own gain, or
that of the best pair that it begins. The best move is made if its worth is above nothing. Then the
next one is looked for, until none is worth it, the target is reached, or enough were made. The best
point of the path is what remains.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.policy.priced.greedy.mutable import Mutable, ScheduleShape, Undo

_LEAST = 1e-9  # of the score: smaller gains are the noise of doubles


class _Step(NamedTuple):
    """One job to its shape; `node` None: nothing has room for it now."""

    job: int
    shape: ScheduleShape | None
    node: int | None
    gain: float


def relink(source: Mutable, targets: list[Mutable], most_moves: int) -> int:
    """Moves the source, in place; returns how many moves were made.

    A move that costs something is made for the sake of the next. Where the moves run out between
    the two, the source goes back to the best point of its path. So it never ends worse than it
    began.
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
    """All jobs whose shape differs, possible now or not."""
    found = []
    for job in range(len(source.node)):
        wanted, had = target.shape(job), source.shape(job)
        if wanted != had and (wanted is None or had is None or wanted[:2] != had[:2]):
            found.append(_tried(source, job, wanted))
    return found


def _tried(source: Mutable, job: int, shape: ScheduleShape | None) -> _Step:
    node = source.fits(job, shape)
    return _Step(job, shape, node, float("-inf") if node is None else source.gain(job, node, shape))


def _best(source: Mutable, steps: list[_Step]) -> _Step | None:
    """The move that is worth most, two steps deep; None if none improves the schedule."""
    best, worth = None, _LEAST * abs(source.score)
    for step in steps:
        if step.node is None:
            continue
        found = max(step.gain, step.gain + _second(source, steps, step))
        if found > worth:
            best, worth = step, found
    return best


def _second(source: Mutable, steps: list[_Step], first: _Step) -> float:
    """The most that any other move gains once the first one was made.

    Moves that touch none of its nodes gain what they gained before."""
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
