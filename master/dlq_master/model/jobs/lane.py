"""Under which claim a job stands in line, and the slots that are planned for it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Lane(IntEnum):
    """Lower lanes are served first. Where nothing is promised everybody is in SPOT."""

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


# Ranks of one lane; no queue's rank goes beyond.
LANE = 1 << 40
# Of everybody in line for a trial, whatever the queue: the first that came is the first that is
# served.
PROFILE_RANK = Lane.PROFILE * LANE

Segments = tuple[Segment, ...]
