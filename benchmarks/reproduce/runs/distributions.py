"""Completion times of one replay as a distribution, on workloads of Tiresias' section 5.1."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from benchmarks.reproduce.runs.tiresias_rules import CLUSTER, settings_of
from dlq_simulator.generate.tiresias import Tiresias
from dlq_simulator.metrics import percentile
from dlq_simulator.replay.engine import replay
from dlq_simulator.world.clusters import read_cluster

STEPS = 100


def distributed(name: str, policy: str, settings: Sequence[str], seed: int) -> dict[str, object]:
    """The completion time in seconds at each hundredth of the jobs."""
    trace = Tiresias().workload(Random(seed))
    result = replay(trace, read_cluster(CLUSTER), settings_of(policy, settings, trace))
    times_s = [float(outcome.jct_s) for outcome in result.outcomes]
    points = [
        (at / STEPS, percentile(times_s, 100 * at / STEPS) or 0.0) for at in range(1, STEPS + 1)
    ]
    return {"name": name, "jct_s": points}
