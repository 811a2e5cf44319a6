"""Replays of a log of a real cluster, of which the short form has a sample."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.reproduce.logs import path_of
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.world.clusters import read_cluster


def on_log(
    log: str, whole: bool, cluster: str, policy: str, settings: Sequence[str]
) -> dict[str, float | None]:
    """Completion times in seconds and preemptions, and the CPU time of reading and replaying."""
    begun_s = time.process_time()
    jobs = read_trace(str(path_of(log, whole)), "auto", skip_bad=True)
    (chosen,) = read_settings([policy], list(settings))
    found = replay(jobs, read_cluster(cluster), chosen).metrics
    return {
        "jobs": found.jobs,
        "avg": found.avg_jct_s,
        "median": found.median_jct_s,
        "p95": found.p95_jct_s,
        "preemptions": found.preemptions,
        "cpu_s": time.process_time() - begun_s,
    }
