"""The simulation of many clusters: whole jobs, once each, and forecasts that are right where they
can be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.clusters.drawn_jobs import DAY_S, DrawnJobs, draw_jobs
from benchmarks.clusters.member import Member
from benchmarks.clusters.simulated import WAYS, RunOfClusters, run_clusters

MEMBERS, GPUS = 4, 100


def jobs_of(**more: Any) -> DrawnJobs:
    words: dict[str, Any] = {
        "jobs": 2_000, "days": 1.0, "members": MEMBERS, "gpus": GPUS, "load": 0.9,
        "longest_s": 6 * 3_600.0, "error": 0.5, "with_deadline": 0.3,
    }  # fmt: skip
    return draw_jobs(1, **words | more)


def played(jobs: DrawnJobs, way: str, **more: Any) -> RunOfClusters:
    words: dict[str, Any] = {
        "members": MEMBERS, "gpus": GPUS, "told_every_s": 0.0, "ask": MEMBERS, "seed": 1,
        "since_s": 0.0, "tell": lambda done: None,
    }  # fmt: skip
    return run_clusters(jobs, way, **words | more)


def test_the_load_of_all_jobs_is_the_wanted_one_and_no_job_is_too_long() -> None:
    jobs = jobs_of(load=0.7)
    assert float((jobs.run_s * jobs.gpus).sum()) == pytest.approx(0.7 * MEMBERS * GPUS * DAY_S)
    assert float(jobs.run_s.max()) <= 6 * 3_600.0
    assert (np.diff(jobs.submit_s) >= 0.0).all()
    with pytest.raises(ValueError, match="too few jobs"):
        jobs_of(jobs=10)


@pytest.mark.parametrize("way", WAYS)
def test_every_job_starts_once_and_not_before_its_submission(way: str) -> None:
    found = played(jobs_of(), way)
    assert len(found.wait_s) == 2_000
    assert float(found.wait_s.min()) >= 0.0
    assert 0.3 < found.used <= 1.0


def test_the_forecast_of_one_cluster_is_right_where_run_times_are_known() -> None:
    """First come, first served: later jobs change nothing of an earlier forecast."""
    jobs = jobs_of(members=1, jobs=500, error=0.0)
    member, ends, told = Member(GPUS), np.zeros(500), []
    for job in range(500):
        at_s, wanted = float(jobs.submit_s[job]), int(jobs.gpus[job])
        (start_s,) = member.starts(at_s, (wanted,))
        member.foretell(at_s, wanted, float(jobs.foretold_s[job]))
        told.append(start_s - at_s)
        ends[job] = start_s
    found = played(jobs, "home", members=1)
    assert found.wait_s == pytest.approx(np.array(told))
    assert found.kept == found.promised > 0


def test_offers_wait_less_than_homes_and_cost_more_messages() -> None:
    jobs = jobs_of()
    home, offers = played(jobs, "home"), played(jobs, "offers")
    assert float(offers.wait_s.mean()) < 0.5 * float(home.wait_s.mean())
    assert home.messages == 2 * 2_000
    assert offers.messages == 2 * 2_000 * (MEMBERS + 1)
    fewer = played(jobs, "offers", ask=2)
    assert fewer.messages == 2 * 2_000 * 3


def test_old_answers_make_jobs_wait_longer() -> None:
    jobs = jobs_of(load=0.95)
    fresh, old = played(jobs, "offers"), played(jobs, "offers", told_every_s=7_200.0)
    assert float(fresh.wait_s.mean()) < float(old.wait_s.mean())


def test_broadcast_promises_nothing_and_may_start_a_job_twice() -> None:
    found = played(jobs_of(), "broadcast")
    assert (found.promised, found.messages) == (0, 2_000 * (4 * MEMBERS - 2))
    assert found.double_starts > 0
