"""A master is killed while a job holds a slot at its last chance: the next one decides what it
would have decided.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job, JobState
from support.crashing_site import STEP_S, TERM_S, Asked, CrashingSite

SLOT_S = 4 * TERM_S
# Two jobs fill the cluster, and end sooner than the next, which is late in the next slot. It enters
# the first slot at the first boundary, at its last chance. "next" has its own in the second slot,
# and the last is promised.
STORY: Mapping[str, Asked] = {
    "first": Asked(0.0, 8, 690.0),
    "other": Asked(0.0, 8, 690.0),
    "chance": Asked(60.0, 8, 600.0, 1_060.0),
    "next": Asked(630.0, 16, 300.0, 1_100.0),
    "promised": Asked(660.0, 8, 300.0, 2_900.0),
}
Decisions = dict[str, list[tuple[float | None, float | None]]]


class Killed(CrashingSite):
    """`at_s`: when the master dies; None: it does not. `seen`: the jobs without a promise that held
    a slot then.
    """

    def __init__(self, at_s: float | None) -> None:
        super().__init__(story=STORY, slo_term_s=SLOT_S)
        self._begin_s, self._at_s = self.master.clock.now_s(), at_s
        self.seen: set[str] = set()

    def _answer(self) -> None:
        super()._answer()
        if self._at_s is None or self.master.clock.now_s() - self._begin_s < self._at_s:
            return
        self._at_s = None
        self.seen = {job.name for job in self.jobs() if holds_a_chance(job)}
        self.crash()

    def decisions(self) -> Decisions:
        """When each attempt of each job began and ended, from the beginning of the story."""
        found: Decisions = {}
        for job in self.jobs():
            tries = sorted(self.master.store.attempts(job.job_id), key=lambda one: one.key)
            found[job.name] = [
                (since(one.started_time_s, self._begin_s), since(one.ended_time_s, self._begin_s))
                for one in tries
            ]
        return found


def holds_a_chance(job: Job) -> bool:
    return job.band is Band.SLO and job.promised is None and not job.ended


def since(at_s: float | None, begin_s: float) -> float | None:
    return None if at_s is None else at_s - begin_s


@pytest.fixture(scope="module")
def undisturbed() -> Decisions:
    site = Killed(None)
    site.run()
    assert all(job.state is JobState.COMPLETED for job in site.jobs())
    return site.decisions()


@pytest.mark.parametrize("at_s", [TERM_S - STEP_S, TERM_S, 2 * TERM_S, 2.5 * TERM_S])
def test_the_next_master_decides_the_same(at_s: float, undisturbed: Decisions) -> None:
    site = Killed(at_s)
    site.run()
    assert (site.told.crashes, site.seen) == (1, {"chance"})
    assert site.decisions() == undisturbed
