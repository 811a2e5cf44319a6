"""The line of one priority: waiting jobs one by one, with running jobs in blocks between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.order.keys import STARTED_BASE, STARTED_END
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.running import Place, RunningByKey
from dlq_master.model.order.waiting import Fifo, WaitingLines
from dlq_master.model.resources import Shape
from dlq_master.model.values import maker


class RunningBlock(NamedTuple):
    """Running jobs with no waiting job between them in the order.

    `job_ids` None: all of the priority that are in no other block; a caller that needs only their
    sum (`gpus`) never lists them.
    """

    position: int
    gpus: int
    job_ids: Sequence[JobId] | None


_block = maker(RunningBlock)
_END = float("inf")  # behind every position


class Blocks:
    """Running jobs of one priority in blocks, taken one after another in their order."""

    __slots__ = ("_blocks", "_taken")

    def __init__(self, blocks: Sequence[RunningBlock] = ()) -> None:
        self._blocks = blocks
        self._taken = 0

    def up_to(self, position: float) -> RunningBlock | None:
        """Take the next block at or before this position; None: there is none."""
        taken = self._taken
        if taken == len(self._blocks) or self._blocks[taken].position > position:
            return None
        self._taken += 1
        return self._blocks[taken]

    def rest(self) -> Iterator[RunningBlock]:
        """Take all remaining blocks."""
        return iter(partial(self.up_to, _END), None)


class RankedBlocks(Blocks):
    """Ordered jobs: those between two waiting jobs are one block, or each is one (`singly`)."""

    __slots__ = ("_job_ids", "_places", "_positions", "_singly")

    def __init__(
        self,
        ranks: tuple[list[int], list[JobId]],
        places: Mapping[JobId, Place],
        *,
        singly: bool = False,
    ) -> None:
        super().__init__()
        self._positions, self._job_ids = ranks
        self._places = places
        self._singly = singly

    def up_to(self, position: float) -> RunningBlock | None:
        positions, begin = self._positions, self._taken
        if begin == len(positions) or positions[begin] > position:
            return None
        end = begin + 1
        if not self._singly:
            end = len(positions) if position == _END else bisect_right(positions, position, begin)
        self._taken = end
        job_ids, places = self._job_ids[begin:end], self._places
        gpus = sum([places[job_id].gpus for job_id in job_ids])
        return _block((positions[begin], gpus, job_ids))


NOBODY_RUNS = Blocks()


def blocks(lineup: Lineup, priority: int, *, apart: bool, singly: bool = False) -> Blocks:
    """The running jobs of a priority in order; `apart` False: no job waits there, so one block is
    enough."""
    running = lineup.running
    if priority not in running.by_priority:
        return NOBODY_RUNS
    gpus = running.gpus_by_priority[priority]
    if not apart:
        return Blocks([RunningBlock(STARTED_BASE, gpus, None)])
    places = running.places
    if not lineup.together or isinstance(running, RunningByKey):
        return RankedBlocks(running.ranked(priority), places, singly=singly)
    together = running.gpus_together[priority]
    found = [RunningBlock(STARTED_BASE, together, None)] if together else []
    if together != gpus:  # promoted ones before the others, demoted ones behind
        found += [
            RunningBlock(places[job].sequence, places[job].gpus, (job,))
            for job in running.by_priority[priority]
            if not STARTED_BASE <= places[job].sequence < STARTED_END
        ]
        found.sort(key=lambda block: block.position)
    return Blocks(found)


def members(
    lineup: Lineup, priority: int, block: RunningBlock, *, in_order: bool
) -> Collection[JobId]:
    """The jobs of a block; `in_order`: in the order in which they keep their GPUs."""
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
    """The same heap for many lines: a line enters it only when its first job may be next."""

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


def line(heap: list[Head], blocks: Blocks, closed: Set[Shape]) -> Iterator[Head | RunningBlock]:
    """A merge of FIFOs, and of blocks, from which a whole shape can be struck off at once.

    Within one plan the capacity only shrinks. So a job whose shape does not fit adds it to
    `closed`. The work grows with placements x shapes, never with the number of waiting jobs.
    """
    unrolled = heap if isinstance(heap, Unrolled) else None
    while heap:
        head = heap[0]
        position, _, shape, jobs = head
        while (block := blocks.up_to(position)) is not None:
            yield block
        yield head
        following = None if closed and shape in closed else next(jobs, None)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (following[1], following[0], shape, jobs))
        if unrolled is not None:
            unrolled.refill()
    yield from blocks.rest()
