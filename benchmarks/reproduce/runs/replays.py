"""Replays of files for `benchmarks.reproduce`: `dlq simulate` as a function of plain words."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import ROOT
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.world.clusters import read_cluster

TRACES = "tests/data/traces"


def replayed(
    trace: str, cluster: str, policy: str, settings: Sequence[str], seed: int = 0
) -> dict[str, float | None]:
    """The metrics of a policy on a trace, a path from the root. A setting that names a file of
    `TRACES` has only its name after `history=`.
    """
    words = [word.replace("history=", f"history={ROOT / TRACES}/") for word in settings]
    (chosen,) = read_settings([policy], words, seed)
    jobs = read_trace(str(ROOT / trace), "auto", skip_bad=True)
    found = replay(jobs, read_cluster(cluster), chosen).metrics
    return {
        "jobs": found.jobs,
        "avg_jct_s": found.avg_jct_s,
        "median_jct_s": found.median_jct_s,
        "p95_jct_s": found.p95_jct_s,
        "avg_queue_s": found.avg_queue_s,
        "makespan_s": found.makespan_s,
        "preemptions": found.preemptions,
        "wdmr": found.wdmr,
        "be_avg_jct_s": found.be_avg_jct_s,
        "guaranteed": found.guaranteed,
        "promises_missed": found.promises_missed,
    }
