"""Waiting jobs: one FIFO per rank and shape, so that work never grows with the queue."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict

from dlq_master.model.ids import JobId
from dlq_master.model.resources import Shape

Fifo = OrderedDict[JobId, int]  # job -> position, in the order of positions


class WaitingIndex:
    """Jobs of one rank and shape are interchangeable: only the first of each needs a look."""

    __slots__ = ("by_rank", "count", "gpus", "ranks")

    def __init__(self) -> None:
        self.ranks: list[int] = []  # sorted, those with waiting jobs
        self.by_rank: dict[int, dict[Shape, Fifo]] = {}
        self.count = 0
        self.gpus = 0

    def add(self, rank: int, shape: Shape, job_id: JobId, sequence: int) -> None:
        shapes = self.by_rank.get(rank)
        if shapes is None:
            shapes = self.by_rank[rank] = {}
            insort(self.ranks, rank)
        fifo = shapes.get(shape)
        if fifo is None:
            fifo = shapes[shape] = OrderedDict()
        _insert(fifo, job_id, sequence)
        self.count += 1
        self.gpus += shape.gpus

    def remove(self, rank: int, shape: Shape, job_id: JobId) -> None:
        shapes = self.by_rank[rank]
        fifo = shapes[shape]
        del fifo[job_id]
        if not fifo:
            del shapes[shape]
            if not shapes:
                del self.by_rank[rank]
                del self.ranks[bisect_left(self.ranks, rank)]
        self.count -= 1
        self.gpus -= shape.gpus


def _insert(fifo: Fifo, job_id: JobId, sequence: int) -> None:
    """Keep the FIFO in order; nearly every job belongs at the tail or close to the head."""
    if not fifo or sequence > fifo[next(reversed(fifo))]:
        fifo[job_id] = sequence
        return
    ahead = []
    for other, position in fifo.items():
        if position > sequence:
            break
        ahead.append(other)
    fifo[job_id] = sequence
    fifo.move_to_end(job_id, last=False)
    for other in reversed(ahead):
        fifo.move_to_end(other, last=False)
