"""Workloads of the deadline comparison: their load, what they share, and ranks with ties."""

from __future__ import annotations

import pytest
from benchmarks.papers.deadline_cases import NODE_GPUS, NODES, case
from benchmarks.papers.deadlines import Ran, table
from benchmarks.papers.deadlines import _rank as rank  # what the tables tell

Row = dict[str, Ran]


def ran(wdmr: float, be_jct_h: float | None = None) -> Ran:
    return Ran(1.15, wdmr, be_jct_h, None, None, 0.0)


def test_at_100_percent_the_load_is_that_of_the_released_workloads() -> None:
    trace, load = case("mix2", 100, 1, jobs=80)
    assert load == pytest.approx(1.15)
    work = sum(job.num_gpus * job.duration_s for job in trace.jobs)
    last_s = max(job.submit_time_s for job in trace.jobs)
    assert work / (NODES * NODE_GPUS * last_s) >= 1.15  # nobody comes after the span


def test_mixes_of_a_seed_share_their_jobs_and_arrivals() -> None:
    shared = [
        [
            (job.submit_time_s, job.num_gpus, job.duration_s)
            for job in case(mix, 100, 1, 40).trace.jobs
        ]
        for mix in ("slo", "mix1", "mix2")
    ]
    assert shared[0] == shared[1] == shared[2]
    assert case("slo", 100, 1, 40).trace.jobs != case("slo", 100, 2, 40).trace.jobs


def test_density_is_in_percent_of_the_jobs() -> None:
    assert [len(case("slo", density, 3, 50).trace.jobs) for density in (80, 160)] == [40, 80]
    assert case("slo", 160, 3, 50) == case("slo", 160, 3, 50)


def test_who_misses_as_much_shares_a_rank() -> None:
    row: Row = {"a": ran(0.2), "b": ran(0.1), "c": ran(0.2), "d": ran(0.3)}
    assert [rank(row, name) for name in "abcd"] == [2, 1, 2, 4]


def test_a_table_is_markdown_with_the_load_beside_the_density() -> None:
    row: Row = {"a": ran(0.2)}
    assert table("slo", {100: row}, ["a"], lambda row, name: f"{row[name].wdmr:.1f}") == (
        "| slo | 100 % (1.15) |\n|---|---|\n| `a` | 0.2 |"
    )
