"""Whole replays on clusters with several own types of GPUs: no promise is ever broken, whoever may
get which.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from sim.test_promise_replays import workload
from support.extent import some, spread

SEEDS = some(range(20), 2)
_TYPES = (None, None, "a|b", "b|a", "a", "b")


def a_cluster(speed: float = 1.0) -> ClusterSpec:
    groups = (
        NodeGroup(name="a", count=3, gpus=8, gpu_type="a", speed=speed),
        NodeGroup(name="b", count=3, gpus=8, gpu_type="b"),
    )
    return ClusterSpec(name="two", groups=groups)


def typed(trace: Trace, seed: int) -> Trace:
    """Most of the jobs may get either type."""
    draw = Random(seed)
    rows = [replace(row, gpu_type=draw.choice(_TYPES)) for row in trace.jobs]
    return Trace.of("typed", [replace(row, num_gpus=min(row.num_gpus, 16)) for row in rows])


@pytest.mark.parametrize("policy", ["chronus", "chronus-paper", "dlq"])
@pytest.mark.parametrize("speed", spread([0.5, 1.0, 2.0], 1))
@pytest.mark.parametrize("seed", spread(SEEDS, 1))
def test_every_promise_is_kept_on_whichever_type(policy: str, speed: float, seed: int) -> None:
    trace = typed(workload(seed), seed)
    (chosen,) = read_settings([policy], (), seed)
    found = replay(trace, a_cluster(speed), chosen)
    promised = found.metrics.guaranteed
    assert (found.metrics.jobs, found.metrics.refused, found.metrics.promises_missed) == (70, 0, 0)
    assert promised is not None
    assert promised >= (15 if speed >= 1.0 else 5)
