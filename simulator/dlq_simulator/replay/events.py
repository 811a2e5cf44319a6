"""The foreseen events of a replay: a heap of instants, in the order in which they happen."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from heapq import heapify, heappush

from dlq_master.model.ids import JobId
from dlq_simulator.world.course import Seconds


class InstantKind(IntEnum):
    """Events of the world."""

    ARRIVE = 0
    FINISH = 1
    LEAVE = 2  # saved, or killed: the GPUs are free
    PROFILE = 3  # it has run long enough for an estimate
    NODES = 4  # nodes come or go; its number is a place in `Fleet.changes`
    RESERVE = 5  # a reservation begins, or is over
    RENT = 6  # a machine boots, has been paid for, or is looked at again
    # A suspended job has left its GPUs, has come back, or is looked at again.
    MOVE = 7


# A job comes, ends or is measured, or nodes change. The other events may recur for ever.
STEPS = frozenset({InstantKind.ARRIVE, InstantKind.FINISH, InstantKind.PROFILE, InstantKind.NODES})

# (time, sequence, kind, job, number): by the sequence, equal times happen in the order in which
# they were scheduled. The number is an attempt's but for NODES.
Event = tuple[Seconds, int, InstantKind, JobId, int]
NOBODY = JobId(0)


class Agenda:
    """All scheduled events; the earliest is `heap[0]`. At one instant nodes change before jobs
    arrive.
    """

    __slots__ = ("_sequence", "heap")

    def __init__(self, nodes: Iterable[Seconds], arrivals: Iterable[tuple[Seconds, JobId]]) -> None:
        at = list(nodes)
        self.heap: list[Event] = [
            (at_s, place - len(at), InstantKind.NODES, NOBODY, place)
            for place, at_s in enumerate(at)
        ]
        first = len(self.heap)
        self.heap += [
            (at_s, place, InstantKind.ARRIVE, job_id, 0)
            for place, (at_s, job_id) in enumerate(arrivals, start=1)
        ]
        self._sequence = len(self.heap) - first
        heapify(self.heap)

    def foresee(self, at_s: Seconds, kind: InstantKind, job_id: JobId, number: int) -> None:
        """Schedule this event behind all earlier ones for the same instant."""
        self._sequence += 1
        heappush(self.heap, (at_s, self._sequence, kind, job_id, number))
