"""Replays of Tiresias with one of its rules varied, on workloads of its section 5.1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from statistics import fmean

from dlq_master.policy.registry.registry import build
from dlq_simulator.generate.tiresias import Tiresias
from dlq_simulator.metrics import percentile
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import ReplaySettings, read_settings
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import read_cluster

CLUSTER = "15x4"  # the testbed of the paper
GITTINS, GANDIVA = "tiresias-gittins", "gandiva"


def varied(policy: str, settings: Sequence[str], seed: int) -> dict[str, float]:
    """Completion times in seconds, and preemptions, on the workload that is drawn from the seed."""
    trace = Tiresias().workload(Random(seed))
    result = replay(trace, read_cluster(CLUSTER), settings_of(policy, settings, trace))
    times_s = [float(outcome.jct_s) for outcome in result.outcomes]
    return {
        "avg": fmean(times_s),
        "median": percentile(times_s, 50) or 0.0,
        "p95": percentile(times_s, 95) or 0.0,
        "longest": max(times_s),
        "preemptions": result.metrics.preemptions,
    }


def settings_of(policy: str, words: Sequence[str], trace: Trace) -> ReplaySettings:
    """Gittins knows the services of the very jobs that it orders, as in the paper. Turns cannot be
    taken at any event, so free preemption of `gandiva` is a switch that costs nothing.
    """
    if policy == GANDIVA:
        words = ["resume_s=0" if word == "preempt=free" else word for word in words]
    (chosen,) = read_settings([policy], words)
    if policy != GITTINS:
        return chosen
    services = [float(job.num_gpus * job.duration_s) for job in trace.jobs]
    return replace(chosen, policy=build(policy, chosen.policy.settings, services))
