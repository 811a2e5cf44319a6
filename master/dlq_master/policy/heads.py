"""Waiting jobs of one rank in the order of their positions, looking only at heads of FIFOs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace

from dlq_master.model.ids import JobId
from dlq_master.model.resources import Shape
from dlq_master.model.waiting import Fifo

Head = tuple[int, JobId, Shape, Iterator[tuple[JobId, int]]]


class Heads:
    """A merge of FIFOs from which a whole shape can be struck off at once.

    Within one plan free capacity only shrinks, so a shape that does not fit stays closed: the work
    grows with placements x shapes, never with the number of waiting jobs.
    """

    __slots__ = ("heap",)

    def __init__(self, fifos: Mapping[Shape, Fifo], closed: set[Shape], most_gpus: float) -> None:
        heap: list[Head] = []
        for shape, fifo in fifos.items():
            if shape.gpus <= most_gpus and shape not in closed:
                jobs = iter(fifo.items())
                job_id, position = next(jobs)
                heap.append((position, job_id, shape, jobs))
        if len(heap) > 1:
            heapify(heap)
        self.heap = heap  # its first entry is the next job: (position, job, shape, those behind it)

    def advance(self) -> None:
        """Go on to the next job."""
        _, _, shape, jobs = self.heap[0]
        following = next(jobs, None)
        if following is None:
            heappop(self.heap)
        else:
            heapreplace(self.heap, (following[1], following[0], shape, jobs))

    def close(self) -> None:
        """Strike off all jobs of the next job's shape."""
        heappop(self.heap)
