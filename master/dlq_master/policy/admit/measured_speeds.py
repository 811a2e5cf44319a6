"""How fast GPU types have proven to be: by kinds of jobs that ran alike on several of them.

For a program with a measured ratio of its own, decisions use that one (`Cluster.pace`). For all
other jobs they use declared speeds (`TypeSpeeds`). The medians here stand beside those, and show an
operator a wrong declaration. They are relative to one type, whose own speed is as declared.
"""

from __future__ import annotations

from collections import defaultdict

from dlq_master.model.jobs.trials import Profiling
from dlq_master.model.nodes.type_speeds import TypeSpeeds
from dlq_master.model.values import median
from dlq_master.policy.admit.family_runs import PAIRS, trusted


def measured_speeds(known: Profiling, speeds: TypeSpeeds, reference: str) -> dict[str, float]:
    """The median over these kinds of jobs, by type. A type on which no kind of job ran that also
    ran on the reference is left out. O(kinds of jobs that ran on several types), `PAIRS` at most.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for kind in known.several(PAIRS):
        runs = known.runs[kind]
        usual = trusted(runs.get(reference, ()))
        if usual is None:
            continue
        for gpu_type, runs_s in runs.items():
            told = None if gpu_type == reference else trusted(runs_s)
            if told is not None:
                found[gpu_type].append(usual.run_s / told.run_s)
    own = speeds.of(reference)
    return {gpu_type: own * median(ratios) for gpu_type, ratios in sorted(found.items())}


def shown(known: Profiling, speeds: TypeSpeeds, reference: str) -> dict[str, float]:
    """The same in three digits, for people."""
    return {
        gpu_type: float(f"{speed:.3g}")
        for gpu_type, speed in measured_speeds(known, speeds, reference).items()
    }
