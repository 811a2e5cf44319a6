"""The dynamic program that the paper compares with (section 4.2.1), in four variants; one job per
node.

F1 chooses the configuration of each job, F2 the cost of running and of postponing it. The program
then chooses the running jobs and their nodes. `wct`: (4) for both. `fast-wct`: the fastest
configuration, and (4). `fast-b`: the fastest configuration, and a constant B for postponing.
`adj-wct`: (5), which counts the tardiness at the job's end in this configuration, and (4).

(4) prints the worst tardiness of a postponed job in seconds, beside $; here it is weighted. The
tardiness of a running job is that at the end of the step.
"""

from __future__ import annotations

from enum import StrEnum

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Floats, Ints
from dlq_master.policy.priced.situation import Grant, Schedule, Situation

_HOUR_S = 3600.0
STEP_S = 900.0  # Delta t: the best of those that the paper tried
B = 1e9  # $; the paper gives no value. Above the cost of any job, so that late jobs run too


class Variant(StrEnum):
    """The variants by F1 and F2."""

    WCT = "wct"
    FAST_WCT = "fast-wct"
    FAST_B = "fast-b"
    ADJ_WCT = "adj-wct"


def dp(
    situation: Situation,
    draw: np.random.Generator,
    *,
    variant: Variant = Variant.ADJ_WCT,
    step_s: float = STEP_S,
    constant: float = B,
) -> Schedule:
    """`step_s`: the seconds for which a decision is paid. Uses no random numbers."""
    if not situation.jobs:
        return Schedule({}, {})
    kind, gpus, run = _configured(situation, variant, step_s)
    if variant is Variant.FAST_B:
        postponed = np.full(len(run), constant)
    else:
        worst = np.maximum(0.0, step_s + situation.slowest - situation.due)
        postponed = situation.weight * worst
    smallest = situation.catalogue.smallest
    types, grants = {}, {}
    for node, job in enumerate(chosen(run, postponed, situation.nodes)):
        types[node] = int(smallest[kind[job], gpus[job]])
        grants[situation.jobs[job].key] = Grant(node, int(gpus[job]))
    return Schedule(types, grants)


def chosen(run: Floats, postponed: Floats, nodes: int) -> list[int]:
    """The jobs that run on at most `nodes` nodes at the least sum of costs, by their numbers.

    Of equal costs a job runs; of equal jobs the earlier one does, as in the paper's FIFO. Each job
    takes one node, so the best choice is the jobs that gain most by running. The paper's table
    gives the same in jobs x nodes steps.
    """
    gain = postponed - run
    most = np.lexsort((np.arange(len(gain)), -gain))[:nodes]
    return sorted(int(job) for job in most if gain[job] >= 0.0)


def _configured(situation: Situation, variant: Variant, step_s: float) -> tuple[Ints, Ints, Floats]:
    """Kind and GPUs of each job by F1, and its running cost by F2."""
    time = situation.time
    due, weight = situation.due[:, None, None], situation.weight[:, None, None]
    node = situation.catalogue.price[None, :, 1:] / _HOUR_S * step_s
    now_late = weight * np.maximum(0.0, np.minimum(time, step_s) - due)
    costs = np.where(np.isfinite(time), now_late + node, np.inf)
    if variant is Variant.WCT:
        first = costs
    elif variant is Variant.ADJ_WCT:
        first = weight * np.maximum(0.0, time - due) + node
    else:
        first = time
    flat = first.reshape(len(time), -1).argmin(axis=1)
    kind, gpus = np.unravel_index(flat, time.shape[1:])
    return kind, gpus + 1, costs[np.arange(len(time)), kind, gpus]
