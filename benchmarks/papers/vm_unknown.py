"""Rented nodes with unknown run times: the cost of learning them from the ended jobs.

    python -m benchmarks.papers.vm_unknown [--json]

Cost of nodes and of lateness under the default and greedy with `times=fitted`, over that with exact
run times. Replayed are the five shipped instances, whose jobs name only their network, and the
cases and seeds of `vm_cases`, whose jobs name their iterations. `refine=off`: measurements of a
running job count for later ones only. `taught`: with all run times of another instance as history.
"""

from __future__ import annotations

import argparse
from statistics import mean, median

from benchmarks import ROOT
from benchmarks.papers import vm_cases
from benchmarks.papers.vm_allocation import TABLE_2, table
from benchmarks.support.report import Report
from dlq_master.policy.priced.greedy.greedy import greedy
from dlq_master.policy.priced.learning import Kin, LearnedTimes
from dlq_master.policy.priced.marginal import marginal
from dlq_master.policy.priced.situation import Solver
from dlq_simulator.priced.instance import RentingInstance, RentingJob, instance_of
from dlq_simulator.priced.times import Fitted, learn
from dlq_simulator.priced.world import World
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import read_cluster
from dlq_simulator.world.speed import Speed

SHIPPED = ROOT / "tests" / "data" / "traces" / "gpuaas"
NAMES = ("exp-10-100-0", "exp-10-100-1", "high-10-100-0", "high-10-100-1", "veryhigh-10-100-0")
# Of another seed: instances of one seed have the same jobs.
TEACHES = {name: "high-10-100-0" if name.endswith("1") else "high-10-100-1" for name in NAMES}
SOLVERS: dict[str, Solver] = {"default": marginal, "greedy": greedy}
SPEEDS = {"K80": 1.0, "M60": 1.1}
MEASURE_S, RESUME_S = 300.0, 60.0


def main() -> None:
    report = Report.begin(
        "papers.vm_unknown", argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    )
    for name in NAMES:
        history = read_trace(str(SHIPPED / TEACHES[name] / "Lof_Selectjobs.csv.gz"))
        compare(report, name, [shipped(name)], history)
    for load in vm_cases.LOADS:
        seeds = [(nodes, seed) for nodes, some in vm_cases.SEEDS.items() for seed in some]
        compare(report, f"load {load}", [drawn(nodes, load, seed) for nodes, seed in seeds])
    report.end()


def compare(
    report: Report, name: str, instances: list[RentingInstance], history: Trace | None = None
) -> None:
    """Both solvers, with and without refinement."""
    for which, solver in SOLVERS.items():
        exact = [World(one, solver, resume_s=RESUME_S).run().total for one in instances]
        for way, refine, taught in (
            ("fitted", True, None),
            ("fitted, taught", True, history),
            ("fitted, refine=off", False, None),
            ("fitted, refine=off, taught", False, history),
        ):
            if "taught" in way and history is None:
                continue
            times = [fitted(one, refine, taught) for one in instances]
            ratios = [
                World(one, solver, resume_s=RESUME_S, times=known).run().total / cost
                for one, known, cost in zip(instances, times, exact, strict=True)
            ]
            errors = [error for known in times for error in known.errors.values()]
            report.figure(
                f"{name}, {which}, {way}: cost over that with exact run times", mean(ratios), "x",
                note=f"{min(ratios):.3f} to {max(ratios):.3f}; estimates at submit off by "
                f"{100 * median(errors):.0f} % in the median",
            )  # fmt: skip


def fitted(one: RentingInstance, refine: bool, history: Trace | None) -> Fitted:
    """Models that know the history, if there is one."""
    speeds = {kind: one.speeds.get(kind, 1.0) for kind in one.catalogue.kinds}
    most = int(one.catalogue.most.max())
    learned = LearnedTimes(tuple(speeds.values()), most)
    if history is not None:
        learn(learned, history, speeds)
    return Fitted(one, learned, MEASURE_S, refine=refine)


def shipped(name: str) -> RentingInstance:
    """One of the five."""
    trace = read_trace(str(SHIPPED / name / "Lof_Selectjobs.csv.gz"))
    return instance_of(trace, read_cluster(str(SHIPPED / "table_2.toml")), Speed())


def drawn(nodes: int, load: float, seed: int) -> RentingInstance:
    """A case whose jobs have a number of iterations."""
    jobs = [
        RentingJob(
            f"j{n:04d}", job.submit_s, job.due_s, job.weight, table(job), Kin("", job.iterations)
        )
        for n, job in enumerate(vm_cases.case(nodes, load, seed))
    ]
    return RentingInstance(jobs, TABLE_2, nodes, SPEEDS)


if __name__ == "__main__":
    main()
