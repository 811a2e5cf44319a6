"""Aryl's further tables: what is seen on lent servers, the testbed's jobs, and wrong run times."""

from __future__ import annotations

import pytest
from benchmarks.reproduce.runs.aryl_loans import on_loan, use
from benchmarks.reproduce.runs.aryl_testbed import WAYS
from benchmarks.reproduce.runs.aryl_testbed import testbed as on_testbed
from benchmarks.reproduce.runs.tuned_rows import OFF, WrongTimes

from dlq_master.policy.policy import Know
from dlq_simulator.workload import TraceJob

FEW = 300  # jobs


def test_jobs_on_lent_servers_are_looked_up_under_both_policies() -> None:
    found = on_loan(4, FEW)
    assert 0.0 <= found["share"] < 1.0
    assert found["Aryl"].keys() == found["Baseline"].keys()


def test_use_is_a_share_of_what_there_is() -> None:
    found = use("Ideal, Aryl", 4, 80)
    shares = (found["training"], found["overall"], *found["hours"], *found["lent_days"])
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert len(found["hours"]) == 48
    assert max(found["lent_days"]) > 0.0


@pytest.mark.parametrize("way", ["Baseline", "Loaning, Aryl", "Scaling, Pollux"])
def test_the_testbed_is_simulated_twice_alike(way: str) -> None:
    found = on_testbed(way, 201)
    assert found == on_testbed(way, 201)
    assert (found["resizes"] > 0.0) == WAYS[way].elastic


def test_a_share_of_run_times_is_wrong_within_the_margin() -> None:
    rows = [
        TraceJob(job_id=str(at), submit_time_s=0, num_gpus=1, duration_s=100) for at in range(500)
    ]
    told = [WrongTimes(know=Know.KNOWN, wrong=0.4).at_submit(row) for row in rows]
    wrong = [value for value in told if value != 100]
    assert 0.3 < len(wrong) / len(rows) < 0.5
    assert all(value is not None and abs(value / 100 - 1.0) <= OFF for value in wrong)
    assert [WrongTimes(know=Know.KNOWN, wrong=0.0).at_submit(row) for row in rows] == [100] * 500
