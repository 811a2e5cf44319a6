"""Replays of Chronus for the sweeps of its section 5, as functions of plain words.

The workloads are those of `deadline_cases`, on 12 nodes of 8 GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean

from benchmarks.papers import deadline_cases
from dlq_master.model.jobs.reward import FULL, missed_share
from dlq_simulator.metrics import ReplayOutcome
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings

Figures = dict[str, float | None]
STRICT, SOFT, REFUSED = "strict", "soft", "refused"


def swept(
    policy: str,
    settings: Sequence[str],
    mix: str,
    density: int,
    seed: int,
    jobs: int,
    hostile: float = 0.0,
    elastic: bool = False,
) -> Figures:
    """The misses of all jobs with deadlines, of strict and soft ones, and of those that admission
    refused. Also the figures of best-effort jobs, in hours. `hostile` and `elastic`: see
    `deadline_cases.case`.
    """
    case = deadline_cases.case(mix, density, seed, jobs, hostile, elastic)
    (chosen,) = read_settings([policy], list(settings), seed)
    result = replay(case.trace, deadline_cases.cluster(), chosen)
    found, ended = result.metrics, result.outcomes
    slo = [one for one in ended if one.job.deadline_s is not None or one.job.soft_steps]
    be_s = found.be_avg_jct_s
    return {
        "load": case.load,
        "wdmr": found.wdmr,
        STRICT: missed(one for one in slo if not one.job.soft_steps),
        SOFT: missed(one for one in slo if one.job.soft_steps),
        REFUSED: missed(one for one in slo if one.promised_s is None),
        "be_jct_h": None if be_s is None else be_s / 3600.0,
        "guaranteed": found.guaranteed,
        "promises_missed": found.promises_missed,
        "preemptions": found.preemptions,
    }


def missed(ended: Iterable[ReplayOutcome]) -> float | None:
    """The weighted miss rate of these (the paper's equation 9, as it is meant); None: there are
    none.
    """
    shares = []
    for one in ended:
        steps = one.job.soft_steps or ((one.job.deadline_s or 0.0, FULL),)
        shares.append(missed_share(steps, one.jct_s))
    return mean(shares) if shares else None
