"""The band of a job in the scheduling order, and the slots that are planned for it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Band(IntEnum):
    """A class above all priorities; lower bands are served first.

    Without promises, trials and quotas every job is in SPOT.
    """

    SLO = -2  # the present slot is planned for it: it has a right to its GPUs
    PROFILE = -1  # it runs to be measured
    SPOT = 0  # best effort, and deadlines without a promise
    FILL = 1  # guaranteed, but the present slot is not planned for it
    BORROW = 2  # beyond its team's quota: GPUs that no other job needs, until one does
    LIMIT = 3  # its team holds as much as it may: it waits for the others of its team


class Segment(NamedTuple):
    """Slots `begin` to `end - 1`, on the same GPUs."""

    begin: int
    end: int


# No queue's priority goes beyond.
PRIORITIES_PER_BAND = 1 << 40
# The priority of all jobs in line for a trial, whatever the queue: the first come is served first.
PROFILE_PRIORITY = Band.PROFILE * PRIORITIES_PER_BAND

Segments = tuple[Segment, ...]
