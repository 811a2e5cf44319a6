"""The line of one priority: waiting jobs one by one, with running jobs in blocks between them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.order.keys import STARTED_BASE, STARTED_END
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.running import RunningByKey
from dlq_master.model.order.waiting import Fifo, WaitingLines
from dlq_master.model.resources import Shape
from dlq_master.model.values import maker


class RunningBlock(NamedTuple):
    """Jobs that stand together: every waiting job ranks before all of them or after all of them.

    `job_ids` None: all of the priority that do not stand in a block of their own. A caller that can
    treat them as one sum (`gpus`) never has to list them.
    """

    position: int
    gpus: int
    job_ids: tuple[JobId] | None


_block = maker(RunningBlock)


def blocks(lineup: Lineup, priority: int, *, apart: bool) -> list[RunningBlock]:
    """The running jobs of a priority in order; `apart` False: no job waits there, so one block is
    enough."""
    running = lineup.running
    if priority not in running.by_priority:
        return []
    gpus = running.gpus_by_priority[priority]
    if not apart:
        return [RunningBlock(STARTED_BASE, gpus, None)]
    places = running.places
    if not lineup.together or isinstance(running, RunningByKey):
        return [
            _block((running.position(job), places[job].gpus, (job,)))
            for job in running.in_order(priority)
        ]
    together = running.gpus_together[priority]
    found = [RunningBlock(STARTED_BASE, together, None)] if together else []
    if together != gpus:  # promoted ones before the others, demoted ones behind
        found += [
            RunningBlock(places[job].sequence, places[job].gpus, (job,))
            for job in running.by_priority[priority]
            if not STARTED_BASE <= places[job].sequence < STARTED_END
        ]
        found.sort(key=lambda block: block.position)
    return found


def members(
    lineup: Lineup, priority: int, block: RunningBlock, *, in_order: bool
) -> Collection[JobId]:
    """The block's jobs; `in_order`: the one that is kept first first."""
    if block.job_ids is not None:
        return block.job_ids
    running = lineup.running
    places = running.places
    everyone = running.in_order(priority) if in_order else running.by_priority[priority]
    if block.gpus == running.gpus_by_priority[priority]:
        return everyone
    return [job for job in everyone if STARTED_BASE <= places[job].sequence < STARTED_END]


# The first job of a FIFO: (position, job, shape, those behind it).
Head = tuple[int, JobId, Shape, Iterator[tuple[JobId, int]]]


MANY_LINES = 64


class Unrolled(list[Head]):
    """The same heap of many lines: a first job comes into it when its turn is near."""

    __slots__ = ("_closed", "_coming", "_lines", "_rest", "_widest")

    def __init__(self, lines: WaitingLines, closed: Set[Shape], widest: float) -> None:
        super().__init__()
        self._lines, self._closed, self._widest = lines, closed, widest
        self._rest = lines.fronts() if widest >= 1 else iter(())
        self._coming = next(self._rest, None)
        self.refill()

    def refill(self) -> None:
        """Take in all that stand before the head of the heap, or the next one if it is empty."""
        while (coming := self._coming) is not None and (not self or coming[0] < self[0][0]):
            position, job_id, shape = coming
            if shape.gpus <= self._widest and shape not in self._closed:
                jobs = iter(self._lines[shape].items())
                next(jobs)
                heappush(self, (position, job_id, shape, jobs))
            self._coming = next(self._rest, None)


def heads(fifos: Mapping[Shape, Fifo], closed: Set[Shape], widest: float) -> list[Head]:
    """A heap of the first job of every shape that is not closed and no wider than `widest`."""
    if len(fifos) > MANY_LINES and isinstance(fifos, WaitingLines):
        return Unrolled(fifos, closed, widest)
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
    unrolled = heap if isinstance(heap, Unrolled) else None
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
            if unrolled is not None:
                unrolled.refill()
        if block is not None:
            yield block


_END = float("inf")  # behind every position
