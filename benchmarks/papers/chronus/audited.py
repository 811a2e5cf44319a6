"""Deadlines on three workloads that were audited from outside: promises, and late jobs.

The first two are parts of MIX1, which the authors of Chronus released. `steady` is every tenth job
of it, and `dense` its first 4,000 jobs, which come in a wave. The third is three days of Philly's
log, jobs of at most a day, with deadlines that Chronus' generator draws. There nine jobs in ten
have a deadline, and most of them are short. A part of a workload is its first jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from benchmarks import ROOT
from dlq_simulator.generate.chronus import MIXES, Chronus
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import read_cluster

FOLDER = "tests/data/traces/deadlines"
DRAWN_SEED = 4242  # of Philly's deadlines


class Audited(NamedTuple):
    """A file of `FOLDER`, its cluster, and the mix of the deadlines that are drawn; "": it has
    deadlines.
    """

    file: str
    cluster: str
    mix: str = ""


WORKLOADS: Mapping[str, Audited] = MappingProxyType(
    {
        "MIX1, steady": Audited("mix1_every_tenth.csv.gz", "12x8"),
        "MIX1, dense": Audited("mix1_first_4000.csv.gz", "60x8"),
        "Philly": Audited("philly_three_days.csv.gz", "14x8", "mix2"),
    }
)
FILES = tuple(f"{FOLDER}/{audited.file}" for audited in WORKLOADS.values())


def workload(name: str, jobs: int | None = None) -> Trace:
    """Its first so many jobs; None: all."""
    file, _, mix = WORKLOADS[name]
    trace = read_trace(str(ROOT / FOLDER / file), "auto", skip_bad=True)
    if mix:
        trace = Chronus(mix=MIXES[mix]).workload(Random(DRAWN_SEED), trace)
    return trace if jobs is None else Trace.of(trace.path, trace.jobs[:jobs])


def audited(
    name: str, policy: str, settings: Sequence[str], jobs: int | None = None
) -> dict[str, float]:
    """One replay, as plain values (`benchmarks.reproduce`)."""
    (chosen,) = read_settings([policy], settings, 0)
    trace = workload(name, jobs)
    found = replay(trace, read_cluster(WORKLOADS[name].cluster), chosen).metrics
    return {
        "asked": sum(row.kind != "be" for row in trace.jobs),
        "promised": found.guaranteed or 0,
        "missed": found.promises_missed or 0,
        "wdmr": found.wdmr or 0.0,
        "avg_jct_s": found.avg_jct_s or 0.0,
        "be_avg_jct_s": found.be_avg_jct_s or 0.0,
    }
