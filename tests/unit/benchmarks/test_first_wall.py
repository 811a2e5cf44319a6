"""The first wall: the load of one size is that of a cluster that is full, and its parts add up."""

from __future__ import annotations

import pytest
from benchmarks.growth.first_wall import Costs, Load, full_from_the_start, measured, wall


def test_the_jobs_of_the_start_fill_the_cluster_and_more_wait() -> None:
    rows = full_from_the_start(1000, 600.0, seed=1).jobs
    at_once = sum(row.num_gpus for row in rows if row.submit_time_s == 0)
    assert 1000 < at_once < 1300
    assert any(row.submit_time_s for row in rows)


def test_the_parts_on_paper_follow_from_their_costs() -> None:
    load = measured(80, "fifo", 600.0, 1, Costs(1.0, 3.0, 1e5))
    assert load.agents == pytest.approx(10 * 0.1)
    assert load.jobs == pytest.approx(load.jobs_s * 4e-3)
    assert load.whole == load.core + load.jobs + load.agents


def a_load(gpus: int, agents: float, longest_ms: float = 1.0) -> Load:
    return Load(gpus, 1.0, 0.1, 0.2, agents, 1.0, longest_ms)


@pytest.mark.parametrize(
    ("loads", "said"),
    [
        ([a_load(10, 0.1), a_load(20, 0.9)], "20 GPUs: 1.20 cores, most of it agents"),
        ([a_load(10, 0.1), a_load(20, 0.1, 5e3)], "20 GPUs: one plan takes 5000 ms"),
        ([a_load(10, 0.1)], "none up to 10 GPUs, which take 0.40 of one core"),
    ],
)
def test_the_wall_is_the_first_size_that_is_too_much(loads: list[Load], said: str) -> None:
    assert wall(loads) == said
