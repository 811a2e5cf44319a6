"""The one walk over all jobs: in the order of priority each takes what is left, and none takes
GPUs from a higher priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.waiting import Fifo
from dlq_master.model.resources import Shape
from dlq_master.policy.place.allocation.line import Head, heads, line
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.running_blocks import RunningBlock


class Allocator(Protocol):
    """GPUs as the walk sees them, and what it means to be served from them.

    The walk says whose turn it is; the allocator decides what that job gets and writes it into
    `outcome`. There are three: `Space` (GPUs that are free now or soon) and `Contest` (also the
    GPUs of lower ranks). `Counts` (numbers of GPUs only, as the reference simulators count).
    """

    lineup: Lineup
    outcome: Outcome
    spent: bool  # nobody else gets anything: the walk is over

    def ranks(self) -> Sequence[int]:
        """The ranks to walk, the highest (with the lowest number) first."""

    def widest(self) -> float:
        """No shape wider than this needs a look."""

    def blocks(self, rank: int, *, apart: bool) -> Sequence[RunningBlock]:
        """Running jobs of the rank that the walk has to come to; `apart`: somebody waits there."""

    def keep(self, rank: int, block: RunningBlock) -> None:
        """The turn of these running jobs. Jobs stay that no other job has outranked."""

    def serve(self, rank: int, head: Head) -> bool:
        """The turn of this waiting job: it starts, or GPUs are kept for it. False: its shape fits
        nowhere any more."""

    def finish(self) -> None:
        """Everybody has had their turn, or nobody else gets anything."""


def walk(allocator: Allocator) -> Outcome:
    """The jobs that start, the jobs that leave, and the jobs for which GPUs are kept."""
    _serve(allocator)
    allocator.finish()
    return allocator.outcome


def _serve(allocator: Allocator) -> None:
    waiting = allocator.lineup.waiting.by_rank
    closed: set[Shape] = set()
    for rank in allocator.ranks():
        heap = heads(waiting.get(rank, _NOBODY), closed, allocator.widest())
        for member in line(heap, allocator.blocks(rank, apart=bool(heap)), closed):
            if isinstance(member, RunningBlock):
                allocator.keep(rank, member)
            elif not allocator.serve(rank, member):
                closed.add(member[2])
            elif allocator.spent:
                return


_NOBODY: dict[Shape, Fifo] = {}
