"""The line of one priority: waiting jobs one by one, with running jobs in blocks between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from heapq import heapify, heappop, heapreplace

from dlq_master.model.ids import JobId
from dlq_master.model.order.waiting import Fifo
from dlq_master.model.resources import Shape
from dlq_master.policy.place.allocation.running_blocks import RunningBlock

# The first job of a FIFO: (position, job, shape, those behind it).
Head = tuple[int, JobId, Shape, Iterator[tuple[JobId, int]]]


def heads(fifos: Mapping[Shape, Fifo], closed: Set[Shape], widest: float) -> list[Head]:
    """A heap of the first job of every shape that is not closed and no wider than `widest`."""
    heap: list[Head] = []
    for shape, fifo in fifos.items():
        if shape.gpus <= widest and shape not in closed:
            jobs = iter(fifo.items())
            job_id, position = next(jobs)
            heap.append((position, job_id, shape, jobs))
    if len(heap) > 1:
        heapify(heap)
    return heap


def line(
    heap: list[Head], blocks: Sequence[RunningBlock], closed: Set[Shape]
) -> Iterator[Head | RunningBlock]:
    """A merge of FIFOs, and of blocks, from which a whole shape can be struck off at once.

    Within one plan the capacity only shrinks. So a job whose shape does not fit adds it to
    `closed`. The work grows with placements x shapes, never with the number of waiting jobs.
    """
    for block in (*blocks, None):
        until: float = _END if block is None else block.position
        while heap and heap[0][0] < until:
            head = heap[0]
            yield head
            shape, jobs = head[2], head[3]
            following = None if closed and shape in closed else next(jobs, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (following[1], following[0], shape, jobs))
        if block is not None:
            yield block


_END = float("inf")  # behind every position
