"""In which order a plan comes to its jobs: who waits and who runs, by rank and position."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.order.running import RunningByKey, RunningIndex
from dlq_master.model.order.waiting import WaitingIndex


class Lineup(NamedTuple):
    """The cluster's own indexes. Who runs stands elsewhere at every plan if a key decides that
    changes with time; a rule that compares all at once makes indexes of its own.

    `together`: running jobs between STARTED_BASE and STARTED_END go ahead of every waiting job of
    their rank but promoted ones, so that they may be kept as one sum.
    """

    waiting: WaitingIndex
    running: RunningIndex | RunningByKey
    together: bool
