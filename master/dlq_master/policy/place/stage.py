"""The place stage: each job of the order gets exact GPUs."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.placement import Placement


class Walk(Protocol):
    """One walk over the order, ready to be made."""

    def walked(self) -> Outcome:
        """The jobs that start and stop, and the jobs for which GPUs are kept."""


class PlaceStage(NamedTuple):
    """How GPUs are found. `blocking`: no job passes the first one that does not start."""

    placement: Placement
    blocking: bool = False
