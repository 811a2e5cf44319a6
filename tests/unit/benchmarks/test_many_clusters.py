"""Many clusters: jobs are dealt out once each, and the busiest master decides about the wall."""

from __future__ import annotations

import pytest
from benchmarks.growth.first_wall import LONGEST_PLAN_MS, Costs, full_from_the_start
from benchmarks.growth.many_clusters import Master, Split, dealt, measured, wall


def a_master(share: float, longest_ms: float = 1.0) -> Master:
    return Master(share, 1.0, longest_ms, [2.0, 4.0], 1, 90)


def test_every_job_goes_to_one_cluster() -> None:
    trace = full_from_the_start(800, 600.0, seed=1)
    parts = dealt(trace, 4)
    assert sorted(row.job_id for part in parts for row in part.jobs) == sorted(
        row.job_id for row in trace.jobs
    )
    sizes = [len(part.jobs) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_a_measured_cluster_is_full_and_knows_the_waits_of_the_jobs_that_came() -> None:
    trace = full_from_the_start(80, 600.0, seed=1)
    came = sum(1 for row in trace.jobs if row.submit_time_s)
    found = measured(trace, 80, "fifo", 600.0, Costs(1.0, 3.0, 1e5))
    assert len(found.waits_s) == came
    assert all(wait_s >= 0 for wait_s in found.waits_s)
    assert 0 < found.held <= 80
    assert found.share > 10 * 0.1  # the ten agents on paper


def test_the_busiest_master_and_the_longest_plan_decide() -> None:
    past = Split(200, [a_master(0.2), a_master(1.2)])
    slow = Split(200, [a_master(0.2), a_master(0.2, LONGEST_PLAN_MS + 1)])
    good = Split(200, [a_master(0.6), a_master(0.5)])
    assert (past.past_the_wall, slow.past_the_wall, good.past_the_wall) == (True, True, False)
    assert wall([past, slow, good]) == "200 GPUs need 2 clusters"
    assert wall([past]) == "every split is past the wall"
    assert good.idle == pytest.approx(0.1)
    assert good.waits_s == [2.0, 4.0, 2.0, 4.0]
