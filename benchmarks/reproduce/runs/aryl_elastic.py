"""Aryl's methods by the share of elastic jobs, with imperfect scaling, and without groups."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.papers.aryl_cases import cluster, workload
from benchmarks.papers.aryl_tables import METHODS, Method
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings

SHARES = (20, 60, 100)  # elastic jobs in Figures 13 and 14, %
RIVALS = {
    "Aryl": ("aryl", ()),
    "AFS": ("aryl", ("size=afs",)),
    "Gandiva": ("gandiva-elastic", ("place=groups",)),
    "Pollux": ("pollux", ("place=groups",)),
    "Aryl+TunedJobs": ("aryl", ()),
}
TUNED = ("Pollux", "Aryl+TunedJobs")
BASELINE = "Baseline"
BASES = ("Basic, Aryl", "Ideal, Aryl")
VARIANTS = {"imperfect": "scaling=aryl", "not grouped": "place=consolidate"}


def elastic_row(rival: str, share: int) -> str:
    """`AFS, 60 % elastic`."""
    return f"{rival}, {share} % elastic"


def variant_row(base: str, variant: str) -> str:
    """`Basic, Aryl, imperfect`."""
    return f"{base}, {variant}"


def _methods() -> Mapping[str, Method]:
    found = {name: METHODS[name] for name in (BASELINE, *BASES)}
    for share in SHARES:
        for rival, (policy, words) in RIVALS.items():
            tuned = 100.0 if rival in TUNED else 0.0
            found[elastic_row(rival, share)] = Method(policy, words, elastic=share, tuned=tuned)
    for base in BASES:
        for variant, word in VARIANTS.items():
            method = METHODS[base]
            found[variant_row(base, variant)] = method._replace(words=(*method.words, word))
    return found


EVERY = _methods()


def aryl_varied(method: str, seed: int, jobs: int) -> dict[str, float]:
    """The means of a replay in seconds, and preemptions by reclaims over jobs in percent."""
    row = EVERY[method]
    (settings,) = read_settings([row.policy], row.words)
    trace = workload(seed, row.elastic, row.any_gpu, row.mixed, count=jobs, tuned=row.tuned)
    found = replay(trace, cluster(seed, lends=row.lends), settings).metrics
    return {
        "jct_s": found.avg_jct_s or 0.0,
        "queue_s": found.avg_queue_s or 0.0,
        "preempted": 100.0 * (found.reclaim_preemption_ratio or 0.0),
    }
