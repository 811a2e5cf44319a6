"""The one walk over all jobs, in the order of priority: each gets GPUs from an allocator. No job
takes GPUs from a higher priority.
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
    """Decides which GPUs a job gets when the walk reaches it, and writes that into `outcome`.

    `Space` gives out GPUs that are free now or soon. `Contest` also gives out GPUs of lower
    priorities. `Counts` gives out numbers of GPUs only, as the reference simulators do. `Quota` of
    the baselines is a `Space` with one line for each queue.
    """

    lineup: Lineup
    outcome: Outcome
    spent: bool  # True ends the walk: no further job gets anything

    def priorities(self) -> Iterable[int]:
        """The priorities to walk, the highest (with the lowest number) first."""

    def widest(self) -> float:
        """The most GPUs that a job can get: wider shapes are skipped."""

    def blocks(self, priority: int, *, apart: bool) -> Blocks:
        """The running jobs of this priority; `apart`: a job waits in it too."""

    def keep(self, priority: int, block: RunningBlock) -> None:
        """The walk has reached these running jobs: they stay, unless they were preempted."""

    def bar(self, rank: tuple[float, float]) -> None:
        """The walk has reached the suspended jobs up to this priority and position: later jobs do
        not get their GPUs.
        """

    def serve(self, priority: int, head: Head) -> bool:
        """The walk has reached this waiting job: start it, or keep GPUs for it. False: its shape
        fits nowhere any more.
        """

    def finish(self) -> None:
        """The walk is over."""


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
