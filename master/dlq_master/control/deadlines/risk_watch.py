"""When somebody has to look whether promises are still kept, and when one that was at risk is told
to be safe. Nothing of it is stored.

At risk is told at once. The owner hears "safe" once nothing was wrong for a while. That while
doubles each time it was too short. So a pace at the edge of the reservation, or an unsteady node,
is no news every ten seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job

CALM_S = 30.0  # without a risk, before a promise is told to be safe
LONGEST_CALM_S = 1200.0


class Risk(NamedTuple):
    """Since when a promise is known to be at risk and why, and the job as it was then."""

    since_s: float
    cause: str
    job: Job


def calm_s(times: int) -> float:
    """How long nothing may be wrong with a promise that was told to be safe so often before."""
    return min(LONGEST_CALM_S, CALM_S * 2.0 ** min(times, 10))


@dataclass(slots=True)
class Risks:
    """`nodes`: nodes that have changed since the last look; `told`: jobs whose owners know of the
    risk; `missed`: that this deadline has passed. `calm`: since when nothing is wrong with one that
    was told; `safe`: how often it was told to be safe. `look_s`: when to look again though no node
    has changed; `slot`: that of the last look.
    """

    nodes: dict[NodeId, None] = field(default_factory=dict)
    told: dict[JobId, Risk] = field(default_factory=dict)
    missed: dict[JobId, int] = field(default_factory=dict)
    calm: dict[JobId, float] = field(default_factory=dict)
    safe: dict[JobId, int] = field(default_factory=dict)
    look_s: float = 0.0
    slot: int = -1

    def moved(self, happened: Iterable[Happened]) -> None:
        """These have moved: with a node, promises may fall."""
        for one in happened:
            if one.node_id is not None:
                self.nodes[one.node_id] = None

    def calmed(self, found: Collection[JobId], now_s: float) -> list[JobId]:
        """The warned jobs that have not been at risk for long enough, given the jobs at risk
        now.
        """
        quiet = self.told.keys() - found
        self.calm = {job_id: self.calm.get(job_id, now_s) for job_id in sorted(quiet)}
        return [
            job_id
            for job_id, since_s in self.calm.items()
            if now_s - since_s >= calm_s(self.safe.get(job_id, 0))
        ]

    def over(self, job_id: JobId) -> Risk:
        """Its owner is told that it is safe, or knows that nothing is promised any more."""
        self.calm.pop(job_id, None)
        self.safe[job_id] = self.safe.get(job_id, 0) + 1
        return self.told.pop(job_id)

    def forget(self, promised: Collection[JobId]) -> None:
        """Nothing but these is promised any more."""
        self.safe = {job_id: times for job_id, times in self.safe.items() if job_id in promised}

    def clear(self) -> None:
        """Nothing is."""
        for known in (self.nodes, self.told, self.missed, self.calm, self.safe):
            known.clear()
