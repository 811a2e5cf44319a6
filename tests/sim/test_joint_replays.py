"""Chronus' placements over whole traces with many widths that do not fill nodes."""

from __future__ import annotations

from statistics import mean

import pytest
from benchmarks.papers.chronus.local_search import CLUSTER, FULL_JOBS, hostile

from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings

pytestmark = pytest.mark.long(
    "unit/master/policy/place/test_joint_placement.py",
)

# docs/policies/placements.md tells the means over the seeds 0 to 5.
SEEDS = (0,)


def mean_jct_s(place: str) -> float:
    (chosen,) = read_settings(["srtf"], [f"place={place}"])
    return mean(
        replay(hostile(seed, FULL_JOBS), CLUSTER, chosen).metrics.avg_jct_s or 0.0 for seed in SEEDS
    )


def test_waiting_for_room_and_placing_as_a_whole_beats_each_alone() -> None:
    pattern, skew, searched = map(mean_jct_s, ("pattern", "skew", "local-search"))
    assert pattern < skew < searched


def test_a_replay_with_exchanges_is_the_same_again() -> None:
    (chosen,) = read_settings(["best-effort"], ["place=pattern"])
    trace = hostile(1, jobs=120)
    first, second = (replay(trace, CLUSTER, chosen) for _ in range(2))
    assert first.outcomes == second.outcomes
    assert first.metrics.avg_jct_s == pytest.approx(second.metrics.avg_jct_s)
