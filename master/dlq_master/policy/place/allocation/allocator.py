"""The one walk over all jobs: in the order of priority each takes what is left, and none takes
GPUs from a higher priority.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.waiting import Fifo
from dlq_master.model.resources import Shape
from dlq_master.policy.place.allocation.line import Blocks, Head, RunningBlock, heads, line
from dlq_master.policy.place.allocation.outcome import Outcome


class Allocator(Protocol):
    """GPUs as the walk sees them, and what it means to be served from them.

    The walk says whose turn it is; the allocator decides what that job gets and writes it into
    `outcome`. There are three: `Space` (GPUs that are free now or soon) and `Contest` (also the
    GPUs of lower priorities). `Counts` (numbers of GPUs only, as the reference simulators count).
    """

    lineup: Lineup
    outcome: Outcome
    spent: bool  # nobody else gets anything: the walk is over

    def priorities(self) -> Iterable[int]:
        """The priorities to walk, the highest (with the lowest number) first."""

    def widest(self) -> float:
        """No shape wider than this needs a look."""

    def blocks(self, priority: int, *, apart: bool) -> Blocks:
        """Running jobs of the priority that the walk comes to; `apart`: a job waits there."""

    def keep(self, priority: int, block: RunningBlock) -> None:
        """The turn of these running jobs. Jobs stay that no other job has outranked."""

    def bar(self, rank: tuple[float, float]) -> None:
        """The turn of the suspended jobs up to this priority and position: nobody whose turn comes
        later gets their GPUs."""

    def serve(self, priority: int, head: Head) -> bool:
        """The turn of this waiting job: it starts, or GPUs are kept for it. False: its shape fits
        nowhere any more."""

    def finish(self) -> None:
        """Everybody has had their turn, or nobody else gets anything."""


def walk(allocator: Allocator) -> Outcome:
    """The jobs that start, the jobs that leave, and the jobs for which GPUs are kept."""
    _serve(allocator)
    if allocator.lineup.out:
        allocator.bar(_LAST)
    allocator.finish()
    return allocator.outcome


def _serve(allocator: Allocator) -> None:
    waiting = allocator.lineup.waiting.by_priority
    closed: set[Shape] = set()
    out = allocator.lineup.out
    for priority in allocator.priorities():
        heap = heads(waiting.get(priority, _NOBODY), closed, allocator.widest())
        for member in line(heap, allocator.blocks(priority, apart=bool(heap)), closed):
            if isinstance(member, RunningBlock):
                allocator.keep(priority, member)
                continue
            if out:
                allocator.bar((priority, member[0]))
            if not allocator.serve(priority, member):
                closed.add(member[2])
            elif allocator.spent:
                return


_LAST = (float("inf"), float("inf"))
_NOBODY: dict[Shape, Fifo] = {}
