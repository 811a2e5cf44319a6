"""What skew-aware placement is for: neither to wait for nothing nor to run slowly for long."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.plan import Start
from dlq_master.policy.turn import Decided
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from support.validate import validate

pytestmark = pytest.mark.long(
    "unit/master/policy/place/test_skew_placement.py",
)

# Largest tensor over model, of the ten models of Tiresias' Table 6.
SKEWS = (0.715, 0.743, 0.773, 0.610, 0.039, 0.053, 0.092, 0.036, 0.086, 0.146)
WIDTHS = (1, 1, 3, 3, 6, 6, 12, 20)
CLUSTER = ClusterSpec(name="15x4", groups=(NodeGroup(count=15, gpus=4),))
# What the models' bytes and their computing make of 25 Gbit/s between the nodes.
CHARGED = ("skew_rho=1.42",)


def a_trace(seed: int, jobs: int = 250) -> Trace:
    """Jobs of mixed models and widths, for about as many GPUs as there are."""
    draw = random.Random(seed)
    rows, now_s = [], 0
    for number in range(jobs):
        rows.append(
            TraceJob(
                job_id=str(number),
                submit_time_s=now_s,
                num_gpus=draw.choice(WIDTHS),
                duration_s=round(draw.lognormvariate(7, 1.2)),
                skew=draw.choice(SKEWS),
            )
        )
        now_s += round(draw.expovariate(60 / mean(WIDTHS) / 2250))
    return Trace.of(f"mixed skews, seed {seed}", rows)


TRACES = [a_trace(seed) for seed in range(3)]


def jct_s(*words: str) -> float:
    """Mean over the traces."""
    (chosen,) = read_settings(["tiresias-las"], [*words, *CHARGED])
    return mean(replay(trace, CLUSTER, chosen).metrics.avg_jct_s or 0.0 for trace in TRACES)


def test_on_mixed_skews_it_beats_both_consolidating_and_spreading_everybody() -> None:
    aware = jct_s("place=skew")
    assert aware < 0.98 * jct_s("place=consolidate")
    assert aware < 0.85 * jct_s("place=spread")


def test_a_replay_teaches_the_limit_that_table_6_has() -> None:
    """`tolerate` between what both kinds lose, and a start that lets everybody be spread at
    times.
    """
    seen: list[Cluster] = []
    (chosen,) = read_settings(
        ["best-effort"], ["place=skew", "pack=try", "packlimit=learned", "tolerate=1.3", *CHARGED]
    )
    replay(TRACES[0], CLUSTER, chosen, watch=lambda cluster, *_: seen.append(cluster))
    packing = seen[-1].packing
    assert packing is not None
    assert packing.learned_from >= 20
    assert 0.146 < packing.skew_limit < 0.61


def test_the_placement_program_gives_legal_plans_and_says_how_it_chose() -> None:
    """Six jobs that fit on no node of three; every plan is checked from scratch as it is made."""
    rows = [
        TraceJob(job_id=str(n), submit_time_s=n, num_gpus=3 + n % 2, duration_s=50 + n, skew=0.7)
        for n in range(6)
    ]
    told: list[str] = []

    def look(cluster: Cluster, decided: Decided, _: float) -> None:
        validate(cluster)
        told.extend(
            one.change.reason.detail for one in decided.happened if isinstance(one.change, Start)
        )

    (chosen,) = read_settings(["tiresias-las"], ["place=ilp"])
    spec = ClusterSpec(name="3x2", groups=(NodeGroup(count=3, gpus=2),))
    result = replay(Trace.of("wide", rows), spec, chosen, watch=look)
    assert len(result.outcomes) == len(rows)
    assert all(words.startswith("the busiest node sends") for words in told)
    assert len(told) >= len(rows)
