"""Aryl's testbed (7.5) as a simulation: 180 jobs on four training and four inference servers.

The paper has 180 jobs, submitted within eight hours, and 10 of them are elastic. They have 16 GPUs
at most, and train for two minutes to two hours. Here run times are drawn evenly on a log scale. The
shares of widths were chosen on other seeds, so that FIFO queues about as long as in the paper.
Submission begins at eight in the morning, so that servers are lent and then asked back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import exp, log
from random import Random
from typing import NamedTuple

from benchmarks.papers.aryl_cases import SETTLE_S, SPEED
from dlq_master.policy.reclaim.controller import Lender, Lending, follow
from dlq_simulator.generate.aryl import Aryl, Diurnal
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.loans import LoanStep

JOBS, ELASTIC, SERVERS = 180, 10, 4
WIDTHS = {1: 57, 2: 17, 4: 11, 8: 13, 16: 2}
BEGIN_S, SUBMIT_S, LEAST_S, MOST_S = 8 * 3600, 8 * 3600, 120, 7200
_TRADE = ("save_s=33", "resume_s=30")  # 63 s for each preemption


class Way(NamedTuple):
    """A row of Table 8. `tuned`: the elastic jobs follow their goodput. `any_gpu`: jobs that name
    no GPU type, in percent.
    """

    policy: str
    words: tuple[str, ...] = ()
    lends: bool = False
    elastic: bool = False
    tuned: bool = False
    any_gpu: float = 21.0


def _loaning(rule: str, any_gpu: float = 21.0) -> Way:
    return Way("aryl", (f"reclaim={rule}",), lends=True, any_gpu=any_gpu)


WAYS: Mapping[str, Way] = {
    "Baseline": Way("fifo", ("place=groups",)),
    "Basic, Aryl": Way("aryl", lends=True, elastic=True),
    "Loaning, Random": _loaning("random"),
    "Loaning, SCF": _loaning("scf"),
    "Loaning, Aryl": _loaning("aryl"),
    "Scaling, Gandiva": Way("gandiva-elastic", ("place=groups",), elastic=True),
    "Scaling, AFS": Way("aryl", ("size=afs",), elastic=True),
    "Scaling, Pollux": Way("pollux", ("place=groups",), elastic=True, tuned=True),
    "Scaling, Aryl": Way("aryl", elastic=True),
    **{f"Any GPU, {rule}": _loaning(rule, 100.0) for rule in ("random", "scf", "aryl", "exact")},
}


def testbed(way: str, seed: int) -> dict[str, float]:
    """Seconds, preemptions by reclaims over jobs in percent, and GPUs vacated besides."""
    row = WAYS[way]
    (settings,) = read_settings([row.policy], (*row.words, *_TRADE))
    found = replay(_jobs(seed, row), _servers(seed, lends=row.lends), settings).metrics
    names = ("queue", "jct")
    told = {
        f"{kind}_{name}_s": float(getattr(found, f"{kind}_{name}_s") or 0.0)
        for name in names
        for kind in ("avg", "median", "p95")
    }
    return {
        **told,
        "preempted": 100.0 * (found.reclaim_preemption_ratio or 0.0),
        "damage": found.reclaim_collateral_damage or 0.0,
        "resizes": float(found.resizes),
    }


def _jobs(seed: int, row: Way) -> Trace:
    dice = Random(f"testbed/{seed}")
    at_s = sorted(BEGIN_S + dice.randrange(SUBMIT_S) for _ in range(JOBS))
    jobs = [
        TraceJob(
            job_id=f"{number:03d}",
            submit_time_s=submit_s,
            num_gpus=dice.choices(tuple(WIDTHS), tuple(WIDTHS.values()))[0],
            duration_s=round(exp(dice.uniform(log(LEAST_S), log(MOST_S)))),
        )
        for number, submit_s in enumerate(at_s)
    ]
    shares = Aryl(
        elastic=100 * ELASTIC / JOBS,
        checkpointless=0.0,
        any_gpu=row.any_gpu,
        tuned=100.0 if row.tuned else 0.0,
    )
    made = shares.workload(Random(f"shares/{seed}"), Trace.of("testbed", jobs)).jobs
    if row.elastic:
        return Trace.of("testbed", made)
    plain = (replace(job, min_workers=None, max_workers=None) for job in made)
    return Trace.of("testbed", plain)


def _servers(seed: int, *, lends: bool) -> ClusterSpec:
    own = NodeGroup(name="v100", count=SERVERS, gpus=8, gpu_type="V100", memory_bytes=32 << 30)
    if not lends:
        return ClusterSpec(name="testbed", groups=(own,))
    lender, state, steps = Lender(SERVERS, settle_s=SETTLE_S), Lending(), list[LoanStep]()
    for load in Diurnal(days=2).loads(Random(f"load/{seed}")):
        state = follow(state, lender, load.at_s, load.busy)
        if not steps or steps[-1].servers != state.lent:
            steps.append(LoanStep(load.at_s, state.lent))
    lent = NodeGroup(
        name="t4",
        count=SERVERS,
        gpus=8,
        gpu_type="T4",
        memory_bytes=16 << 30,
        speed=SPEED,
        lent=tuple(steps),
    )
    return ClusterSpec(name="testbed and lent", groups=(own, lent))
