"""Costs of methods that rent nodes, on the cases of `benchmarks.reproduce.runs.vm_rates`, and the
validation in a cloud as a simulation.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import NamedTuple

from benchmarks.papers import vm_cases
from benchmarks.reproduce.runs.vm_rates import Guessed, bill, instance, submitted
from dlq_master.policy.priced.catalogue import NodeType
from dlq_simulator.priced.instance import RentingInstance
from dlq_simulator.priced.world import Bill

TYPES = tuple(NodeType(*row) for row in vm_cases.TABLE_2)
RANDOM = ("gpuaas-randomized", "gpuaas-path-relinking", "gpuaas-local-search")
DP_STEP_S = 900.0
HOUR_S = 3600.0
# Section 4.6: jobs in the order of Table 3, two nodes, a job every 300 s, the first six types.
AZURE_JOBS, AZURE_NODES, AZURE_GAP_S, AZURE_TYPES = 6, 2, 300.0, TYPES[:6]
ALONE_S = (5400.0, 18_000.0)  # on one K80: invented, so that all of it takes less than three hours
BOOT_S, MIGRATE_S, ERROR = 120.0, 60.0, 0.11


def cost(
    method: str,
    rate: str,
    nodes: int,
    seed: int,
    iterations: int,
    times: int = 1,
    jobs: int = 0,
    hourly: bool = True,
) -> float:
    """$ of nodes and of being late. `method`: a policy, or gpuaas-dp/VARIANT; `times`: so many
    times as many nodes for the same jobs; `jobs`: only the first ones (0: all); `hourly`: decisions
    come every hour too.
    """
    drawn = list(submitted(nodes, rate, seed))
    there = instance(drawn[: jobs or None], nodes * times, TYPES)
    return _bill(there, method, iterations, hourly=hourly).total


class Loaded(NamedTuple):
    """$ in all and for being late, and how many jobs there were at once at most, for each node."""

    total: float
    late: float
    at_once: float


def loaded(
    method: str,
    rate: str,
    nodes: int,
    seed: int,
    iterations: int,
    times: int,
    weaker: float = 0.0,
    longer: float = 1.0,
) -> Loaded:
    """The same with jobs that may be as in `submitted`, and how full the nodes were."""
    there = instance(list(submitted(nodes, rate, seed, weaker, longer)), nodes * times, TYPES)
    found = _bill(there, method, iterations)
    came = [(there.jobs[number].submit_s, 1) for number in found.finish_s]
    went = [(end_s, -1) for end_s in found.finish_s.values()]
    at_once = accumulate(by for _, by in sorted(came + went))
    return Loaded(found.total, found.tardiness, max(at_once) / nodes)


def _bill(there: RentingInstance, method: str, iterations: int, *, hourly: bool = True) -> Bill:
    name, _, variant = method.partition("/")
    words = {"variant": variant} if variant else {}
    if name in RANDOM:
        words["iterations"] = str(iterations)
    step_s = DP_STEP_S if name == "gpuaas-dp" else HOUR_S * hourly
    return bill(there, name, words, interval_s=step_s)


def azure(seed: int, boot_s: float, migrate_s: float, error: float) -> float:
    """The cost of Table 3's jobs under path relinking on two nodes."""
    draw = Random(seed)
    drawn, factors = [], []
    for number in range(AZURE_JOBS):
        alone_s, exponent = draw.uniform(*ALONE_S), draw.uniform(0.75, 0.95)
        faster, submit_s = draw.uniform(1.05, 2.0), number * AZURE_GAP_S
        k80 = tuple(alone_s / gpus**exponent for gpus in range(1, 5))
        times_s = {"K80": k80, "M60": tuple(time_s / faster for time_s in k80)}
        due_s = submit_s + draw.uniform(1.0, 3.0) * times_s["M60"][-1]
        drawn.append(vm_cases.Drawn(submit_s, due_s, draw.uniform(0.003, 0.015), times_s))
        factors.append(1.0 + draw.uniform(-error, error))
    types = [kind._replace(boot_s=boot_s) for kind in AZURE_TYPES]
    there = instance(drawn, AZURE_NODES, types)
    words = {"iterations": "200"}
    guessed = Guessed(there, factors)
    return bill(there, "gpuaas-path-relinking", words, resume_s=migrate_s, times=guessed).total
