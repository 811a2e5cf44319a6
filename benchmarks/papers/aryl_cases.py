"""The workload of `aryl_tables`: Aryl's clusters (7.1) at a tenth of their size, jobs drawn.

The paper gives the number of jobs and GPUs of its trace, and completion and queueing times under
FIFO. Run times here are drawn so that FIFO's means come out alike: 16,600 s and 3,100 s, with these
seeds 15,900 s and 3,200 s. That was fitted before anything else was replayed on it.
`dlq_simulator.generate.aryl` chooses the elastic jobs, the jobs for any GPU, and the load of the
inference cluster.
"""

from __future__ import annotations

from math import cos, pi
from random import Random

from dlq_master.policy.reclaim.controller import Lender, Lending, follow
from dlq_simulator.generate.aryl import Aryl, Diurnal
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.loans import LoanStep

SEEDS = (4, 9, 16)
DAY_S = 86_400
DAYS, JOBS = 15, 5039
TRAINING, INFERENCE = 44, 52  # servers of 8 GPUs
SPEED = 1 / 3  # section 7.5: three inference servers are worth one for training
SETTLE_S = 1800.0

WIDTHS = {1: 50, 2: 15, 4: 12, 8: 13, 16: 6, 32: 3, 64: 1}
MEDIAN_S, SIGMA, LONGEST_S = 800.0, 2.43, 10 * DAY_S


def jobs(seed: int, count: int = JOBS, days: int = DAYS) -> Trace:
    """More by day than by night."""
    dice = Random(f"aryl/{seed}")
    at_s = sorted(_arrivals(dice, count, days))
    rows = [
        TraceJob(
            job_id=f"{number:05d}",
            submit_time_s=round(submit_s),
            num_gpus=dice.choices(tuple(WIDTHS), tuple(WIDTHS.values()))[0],
            duration_s=round(min(LONGEST_S, max(60.0, _run_time_s(dice)))),
        )
        for number, submit_s in enumerate(at_s)
    ]
    return Trace.of(f"aryl, seed {seed}", rows)


def workload(
    seed: int,
    elastic: float = 5.0,
    any_gpu: float = 21.0,
    mixed: float = 0.0,
    *,
    count: int = JOBS,
    days: int = DAYS,
    checkpointless: float = 0.0,
    tuned: float = 0.0,
) -> Trace:
    """The same jobs with their abilities; no job loses its work (Aryl counts 63 s a preemption)."""
    shares = Aryl(
        elastic=elastic, any_gpu=any_gpu, mixed=mixed, checkpointless=checkpointless, tuned=tuned
    )
    return shares.workload(Random(f"shares/{seed}"), jobs(seed, count, days))


def cluster(
    seed: int, *, lends: bool, training: int = TRAINING, inference: int = INFERENCE
) -> ClusterSpec:
    """Training servers, and with them the inference servers that are lent."""
    own = NodeGroup(name="v100", count=training, gpus=8, gpu_type="V100", memory_bytes=32 << 30)
    if not lends:
        return ClusterSpec(name="training", groups=(own,))
    lent = NodeGroup(
        name="t4",
        count=inference,
        gpus=8,
        gpu_type="T4",
        memory_bytes=16 << 30,
        speed=SPEED,
        lent=steps(seed, inference),
    )
    return ClusterSpec(name="training and lent", groups=(own, lent))


def steps(seed: int, inference: int = INFERENCE) -> tuple[LoanStep, ...]:
    """The lent servers over time."""
    lender, state = Lender(inference, settle_s=SETTLE_S), Lending()
    found: list[LoanStep] = []
    for load in Diurnal(days=DAYS).loads(Random(f"load/{seed}")):
        state = follow(state, lender, load.at_s, load.busy)
        if not found or found[-1].servers != state.lent:
            found.append(LoanStep(load.at_s, state.lent))
    return tuple(found)


def _arrivals(dice: Random, count: int, days: int) -> list[float]:
    found: list[float] = []
    while len(found) < count:
        at_s = dice.uniform(0.0, days * DAY_S)
        by_day = 1.0 + 0.5 * cos(2 * pi * (at_s / DAY_S - 15 / 24))
        if dice.uniform(0.0, 1.5) < by_day:
            found.append(at_s)
    return found


def _run_time_s(dice: Random) -> float:
    return MEDIAN_S * dice.lognormvariate(0.0, SIGMA)
