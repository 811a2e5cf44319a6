"""Chronus' placements over whole traces with many widths that do not fill nodes."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup

pytestmark = pytest.mark.long(
    "unit/master/policy/place/test_joint_placement.py",
)

WIDTHS = {1: 16, 2: 18, 3: 12, 4: 18, 5: 7, 6: 8, 7: 5, 8: 10, 12: 2, 16: 3, 20: 1}
RHOS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5)
CLUSTER = ClusterSpec(name="16x8", groups=(NodeGroup(count=16, gpus=8),))
# docs/policies/placements.md tells the means over the seeds 0 to 5.
SEEDS = (0,)


def hostile(seed: int, jobs: int = 600, gap_s: float = 90.0) -> Trace:
    """Load 0.96 on average over six seeds."""
    dice, told = random.Random(seed), random.Random(seed + 1)
    now_s, rows = 0.0, []
    for number in range(jobs):
        now_s += dice.expovariate(1 / gap_s)
        (gpus,) = dice.choices(tuple(WIDTHS), tuple(WIDTHS.values()))
        duration_s = min(14_400.0, max(60.0, dice.lognormvariate(7.2, 1.2)))
        dice.choice(RHOS)
        rows.append(
            TraceJob(
                job_id=str(number),
                submit_time_s=now_s,
                num_gpus=gpus,
                duration_s=duration_s,
                rho=told.choice(RHOS),
            )
        )
    return Trace.of("hostile", rows)


def mean_jct_s(place: str) -> float:
    (chosen,) = read_settings(["srtf"], [f"place={place}"])
    return mean(replay(hostile(seed), CLUSTER, chosen).metrics.avg_jct_s or 0.0 for seed in SEEDS)


def test_waiting_for_room_and_placing_as_a_whole_beats_each_alone() -> None:
    pattern, skew, searched = map(mean_jct_s, ("pattern", "skew", "local-search"))
    assert pattern < skew < searched


def test_a_replay_with_exchanges_is_the_same_again() -> None:
    (chosen,) = read_settings(["best-effort"], ["place=pattern"])
    trace = hostile(1, jobs=120)
    first, second = (replay(trace, CLUSTER, chosen) for _ in range(2))
    assert first.outcomes == second.outcomes
    assert first.metrics.avg_jct_s == pytest.approx(second.metrics.avg_jct_s)
