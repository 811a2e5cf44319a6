"""The simulation of many clusters: whole jobs, once each, and forecasts that are right where they
can be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.clusters.drawn_jobs import DAY_S, DrawnJobs, draw_jobs
from benchmarks.clusters.member import Member
from benchmarks.clusters.simulated import CHOICES, WAYS, RunOfClusters, drawn, run_clusters

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
        "choose": "own-first", "since_s": 0.0, "tell": lambda done: None,
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


def test_a_job_starts_as_soon_as_the_jobs_before_it_leave_room() -> None:
    """Against a slow play of instants: first come, first served, with gangs whole."""
    jobs = jobs_of(members=1, jobs=600, load=1.1, error=0.0)
    found = played(jobs, "home", members=1)
    starts_s = found.wait_s + jobs.submit_s
    ends_s = starts_s + jobs.run_s
    for job in range(600):
        held = [
            int(jobs.gpus[:job][(starts_s[:job] <= at_s) & (ends_s[:job] > at_s)].sum())
            for at_s in (starts_s[job], np.nextafter(starts_s[job], 0.0))
        ]
        assert held[0] + jobs.gpus[job] <= GPUS
        earliest_s = max(jobs.submit_s[job], starts_s[job - 1] if job else 0.0)
        assert starts_s[job] == earliest_s or held[1] + jobs.gpus[job] > GPUS
    assert found.wait_s.max() > 0.0


def test_the_forecast_is_right_where_run_times_are_known() -> None:
    jobs = jobs_of(members=1, jobs=500, error=0.0)
    found = played(jobs, "home", members=1)
    assert found.kept == found.promised > 0
    member = Member(GPUS)
    facts = zip(
        jobs.submit_s.tolist(), jobs.gpus.tolist(), jobs.run_s.tolist(),
        jobs.foretold_s.tolist(), jobs.due_s.tolist(), strict=True,
    )  # fmt: skip
    for job, fact in enumerate(facts):
        (told_s,) = member.starts(fact[0], [fact[1]])
        assert member.play([fact]) == [pytest.approx(told_s)]
        assert told_s - fact[0] == pytest.approx(found.wait_s[job])


def test_the_load_of_a_cluster_counts_the_jobs_that_have_not_ended() -> None:
    member = Member(GPUS)
    member.play([(0.0, 80, 50.0, 50.0, np.inf), (0.0, 30, 10.0, 10.0, np.inf)])
    assert [member.load(at_s) for at_s in (1.0, 55.0, 61.0)] == [10.0, -70.0, -100.0]


def test_clusters_are_drawn_evenly_without_one_twice() -> None:
    found = drawn(np.random.default_rng(1), 20_000, 5, 3)
    assert all(len(set(row)) == 3 for row in found[:500].tolist())
    counts = np.bincount(found.ravel())
    assert counts == pytest.approx(np.full(5, 12_000), rel=0.03)
    assert drawn(np.random.default_rng(1), 2, 3, 3).tolist() == [[0, 1, 2]] * 2


def test_a_random_cluster_has_nothing_to_do_with_the_job() -> None:
    """Both were once drawn from one stream: then a cluster got jobs of a kind."""
    jobs = jobs_of(jobs=20_000)
    random, home = played(jobs, "random"), played(jobs._replace(home=_even(20_000)), "home")
    assert float(random.wait_s.mean()) == pytest.approx(float(home.wait_s.mean()), rel=0.5)


def _even(jobs: int) -> Any:
    return np.random.default_rng(99).integers(MEMBERS, size=jobs)


def test_offers_wait_less_than_homes_and_cost_more_messages() -> None:
    jobs = jobs_of()
    home, offers = played(jobs, "home"), played(jobs, "offers")
    assert float(offers.wait_s.mean()) < 0.5 * float(home.wait_s.mean())
    assert home.messages == 2 * 2_000
    assert offers.messages == 2 * 2_000 * (MEMBERS + 1)
    fewer = played(jobs, "offers", ask=2)
    assert fewer.messages == 2 * 2_000 * 3


def test_offers_by_lot_wait_less_than_offers_that_prefer_their_own_cluster() -> None:
    """Uneven homes fill some clusters to the brim, where a forecast that errs still offers room."""
    many = {"members": 10, "gpus": 200}
    jobs = jobs_of(jobs=8_000, load=0.75, **many)
    more = many | {"ask": 10, "told_every_s": 30.0}
    waits = {
        choose: float(played(jobs, "offers", choose=choose, **more).wait_s.mean())
        for choose in CHOICES
    }
    assert max(waits["by-lot"], waits["spread"]) < waits["own-first"]


def test_old_answers_make_jobs_wait_longer() -> None:
    jobs = jobs_of(load=0.95)
    fresh, old = played(jobs, "offers"), played(jobs, "offers", told_every_s=7_200.0)
    assert float(fresh.wait_s.mean()) < float(old.wait_s.mean())


def test_broadcast_promises_nothing_and_may_start_a_job_twice() -> None:
    found = played(jobs_of(), "broadcast")
    assert (found.promised, found.messages) == (0, 2_000 * (4 * MEMBERS - 2))
    assert found.double_starts > 0
