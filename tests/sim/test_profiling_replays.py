"""Whole replays of chronus with trials: promises hold, trials come soon, nothing is held twice."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from dlq_master.model.cluster.cluster import Cluster
from dlq_simulator.generate.chronus import MIXES, Chronus
from dlq_simulator.replay.engine import replay
from dlq_simulator.results.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster
from support.extent import some, spread
from support.validate import validate

SLOT_S = 1200.0


def workload(seed: int, longs: int = 90, shorts: int = 60, hours: float = 10.0) -> Trace:
    """Jobs of minutes to hours with deadlines (mix2), and short ones that no trial outlives."""
    draw = Random(seed)
    widths = [1, 1, 2, 4, 8, 8, 16, 24]
    rows = [
        TraceJob(
            job_id=f"l{number}",
            submit_time_s=draw.randrange(int(hours * 3600)),
            num_gpus=draw.choice(widths),
            duration_s=round(320 * 60 ** draw.random()),
        )
        for number in range(longs)
    ]
    mixed = Chronus(mix=MIXES["mix2"]).workload(draw, Trace.of("long", rows))
    short = [
        TraceJob(
            job_id=f"s{number}",
            submit_time_s=draw.randrange(int(hours * 3600)),
            num_gpus=draw.choice(widths[:-1]),
            duration_s=draw.randrange(5, 300),
        )
        for number in range(shorts)
    ]
    return Trace.of("mixed", [*mixed.jobs, *short])


@cache
def replayed(seed: int, *words: str) -> Result:
    (chosen,) = read_settings(["chronus"], ["know=profiled", *words])

    def sound(cluster: Cluster, *_: object) -> None:
        validate(cluster)

    return replay(workload(seed), read_cluster("8x8"), chosen, watch=sound)


@pytest.mark.parametrize("seed", spread(some(range(8), 2), 1))
def test_with_exact_trials_no_promise_is_broken(seed: int) -> None:
    found = replayed(seed, "noise=0").metrics
    assert found.jobs == 150
    assert (found.promises_missed, found.refused) == (0, 0)
    assert found.guaranteed is not None
    assert found.guaranteed > 30
    # Whoever is in the way of a trial moves at the end of a slot, or of the next one in which it
    # may.
    assert found.max_profiler_pending_s is not None
    assert found.max_profiler_pending_s < 4 * SLOT_S


def test_short_jobs_end_in_their_trials_and_are_never_scheduled() -> None:
    for outcome in replayed(0, "noise=0").outcomes:
        short = outcome.job.duration_s < 300 and outcome.job.num_gpus <= 16
        assert outcome.ended_in_trial == short


@pytest.mark.parametrize("seed", some([2, 3], 1))
def test_only_who_runs_longer_than_was_reserved_misses_what_was_promised(seed: int) -> None:
    """Whatever was learned later, and whoever else overran."""
    reserved_s: dict[str, float] = {}

    def watch(cluster: Cluster, *_: object) -> None:
        for job in cluster.jobs.values():
            if job.promised is not None and job.duration_estimate_s and job.margin is not None:
                reserved_s[job.name] = job.duration_estimate_s * (1 + job.margin)

    (chosen,) = read_settings(["chronus"], ["know=profiled", "noise=0.4"])
    found = replay(workload(seed), read_cluster("8x8"), chosen, watch=watch)
    late = [o.job for o in found.outcomes if o.promised_s is not None and o.jct_s > o.promised_s]
    assert late
    assert all(job.duration_s > reserved_s[job.job_id] for job in late)


@pytest.mark.long("sim/test_replay_invariants.py::test_the_same_replay_twice_is_the_same_replay")
def test_the_same_replay_twice_is_the_same_replay() -> None:
    (chosen,) = read_settings(["chronus"], ["know=profiled", "noise=0.3", "submit_gpus=24"])
    trace = workload(5, longs=45, shorts=30, hours=5.0)
    first, second = (replay(trace, read_cluster("8x8"), chosen) for _ in range(2))
    assert (first.outcomes, first.metrics) == (second.outcomes, second.metrics)
