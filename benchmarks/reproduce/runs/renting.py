"""The cost of one method on rented nodes, with known run times (`renting`) or unknown ones.

Replayed are the five shipped instances, whose jobs name only their network, and the cases of
`vm_cases`, whose jobs name their iterations. A change of a job costs 60 s, and decisions come every
hour too. `fitted`: models learn from ended jobs, and a job's own speed counts after five minutes.
`models`: only the models count. `taught`: with all run times of another instance as history.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import NamedTuple

from benchmarks import ROOT
from benchmarks.papers import vm_allocation, vm_cases
from benchmarks.papers.vm_allocation import TABLE_2, table
from dlq_master.policy.priced.compared.first_principle import edf
from dlq_master.policy.priced.greedy.greedy import PATH_RELINKING, greedy, path_relinking
from dlq_master.policy.priced.learning import JobFeatures, LearnedTimes
from dlq_master.policy.priced.marginal import marginal
from dlq_master.policy.priced.situation import Solver
from dlq_simulator.priced.instance import RentingInstance, RentingJob, instance_of
from dlq_simulator.priced.times import Fitted, learn
from dlq_simulator.priced.world import World
from dlq_simulator.traces import read_trace
from dlq_simulator.world.clusters import read_cluster
from dlq_simulator.world.speed import Speed

SHIPPED = "tests/data/traces/gpuaas"
INSTANCES = {
    "exp-0": "exp-10-100-0",
    "exp-1": "exp-10-100-1",
    "high-0": "high-10-100-0",
    "high-1": "high-10-100-1",
    "veryhigh-0": "veryhigh-10-100-0",
}
EXACT = "exact"
WAYS = (EXACT, "fitted", "fitted, taught", "models", "models, taught")
SOLVERS: Mapping[str, Solver] = {"dlq": marginal, "greedy": greedy}
SPEEDS = {"K80": 1.0, "M60": 1.1}
MEASURE_S, RESUME_S = 300.0, 60.0


def renting(method: str, nodes: int, load: float, seed: int, iterations: int) -> float:
    """The cost of nodes and of lateness."""
    rules = PATH_RELINKING._replace(iterations=iterations)
    solvers: Mapping[str, Solver] = {
        "default": marginal,
        "greedy": greedy,
        "EDF": edf,
        "path relinking": partial(path_relinking, rules=rules),
    }
    return World(vm_allocation.instance(nodes, load, seed), solvers[method]).run().total


class Learned(NamedTuple):
    """$ in all, and the median error of the estimates at the submit; 0 with exact run times."""

    total: float
    error: float


def unknown(method: str, way: str, instance: str, nodes: int = 0, seed: int = 0) -> Learned:
    """The cost of a shipped instance, or of a case of `vm_cases` at the load that its name says."""
    one = _drawn(float(instance.split()[-1]), nodes, seed) if nodes else _shipped(instance)
    times = None if way == EXACT else _fitted(one, way, instance)
    bill = World(one, SOLVERS[method], resume_s=RESUME_S, times=times).run()
    return Learned(bill.total, 0.0 if times is None else median(times.errors.values()))


def _shipped(instance: str) -> RentingInstance:
    file = ROOT / SHIPPED / INSTANCES[instance] / "Lof_Selectjobs.csv.gz"
    cluster = read_cluster(str(ROOT / SHIPPED / "table_2.toml"))
    return instance_of(read_trace(str(file)), cluster, Speed())


def _drawn(load: float, nodes: int, seed: int) -> RentingInstance:
    """Its jobs have a number of iterations."""
    jobs = [
        RentingJob(
            f"j{n:04d}",
            job.submit_s,
            job.due_s,
            job.weight,
            table(job),
            JobFeatures("", job.iterations),
        )
        for n, job in enumerate(vm_cases.case(nodes, load, seed))
    ]
    return RentingInstance(jobs, TABLE_2, nodes, SPEEDS)


def teacher(instance: str) -> str:
    """Of another seed, as instances of one seed have the same jobs."""
    return INSTANCES["high-0" if instance.endswith("1") else "high-1"]


def _fitted(one: RentingInstance, way: str, instance: str) -> Fitted:
    speeds = {kind: one.speeds.get(kind, 1.0) for kind in one.catalogue.kinds}
    learned = LearnedTimes(tuple(speeds.values()), int(one.catalogue.most.max()))
    if way.endswith("taught"):
        history = ROOT / SHIPPED / teacher(instance) / "Lof_Selectjobs.csv.gz"
        learn(learned, read_trace(str(history)), speeds)
    return Fitted(one, learned, MEASURE_S, refine=way.startswith("fitted"))
