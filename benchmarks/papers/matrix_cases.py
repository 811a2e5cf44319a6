"""The workloads of `benchmarks.papers.matrix`, each with the cluster that is natural for it.

Seeds, shares and sizes were written down before any result. `own-480` and `tiresias-60` are files,
the `gpuaas` ones too. The others are drawn, by the generators of `dlq simulate generate` and those
of the benchmarks beside this one. The mixed ones put Chronus' deadlines over Aryl's jobs and lent
servers: deadlines, best effort, elastic jobs and loans in one trace. `mixed-typed` was added after
the first results: where no job names a GPU type, as in the first two, nothing can be promised.

Each workload has one metric of its own, what its paper judges by:

- cost where a paper pays for nodes and lateness: rented by need, or the same jobs on kept nodes;
- wDMR where all jobs have deadlines;
- wDMR and the JCT of best effort together where only some have: each can be bought with the other;
- average JCT everywhere else.

A workload of one's own is `FILE@CLUSTER`, both as `dlq simulate` takes them; `FILE@CLUSTER+mixed`
has a fifth of its jobs elastic and the deadlines of mix1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from benchmarks import ROOT
from benchmarks.papers import aryl_cases, deadline_cases
from benchmarks.papers.matrix_verdicts import Metric
from benchmarks.planning.simulate import philly_like
from dlq_simulator.generate.aryl import Aryl
from dlq_simulator.generate.chronus import MIXES, Chronus, Mix
from dlq_simulator.generate.tiresias import Tiresias
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup, read_cluster

SEEDS = (7601, 7602, 7603)
JOBS = 400  # of a drawn workload
JOBS_PER_CPU_S = 500.0  # of a long trace; the start of a replay weighs on a short one
TRACES = ROOT / "tests" / "data" / "traces"

# Aryl's clusters and arrivals, cut so that servers x days go with the jobs: at 500 jobs 22 and 26
# servers and 3 days.
_ARYL_DAYS, _ARYL_TRAINING, _ARYL_INFERENCE = 3, 22, 26
_ARYL_JOBS = 504
# Lent servers are needed: as in the crowded rows of `aryl_tables`.
_CROWD = 1.35
MIXED = "+mixed"
_HALF = Mix(25, 25, 50)  # as much best effort as deadlines


class Case(NamedTuple):
    """One workload, and its cluster."""

    trace: Trace
    cluster: ClusterSpec


class Cell(NamedTuple):
    """The matrix' entry for a workload: its special parts, and its making from a seed and a number
    of jobs.
    """

    about: str
    make: Callable[[int, int], Case]
    mixed: bool = False  # deadlines, best effort, elastic jobs and loans together
    drawn: bool = True  # a file is the same for every seed
    rented: bool = False  # all nodes are, by need
    jobs_per_cpu_s: float | None = None  # that the challenger is to replay, at least
    metric: Metric = Metric.AVERAGE  # its own


class Elastic(NamedTuple):
    """The parameters of one of Aryl's traces, in percent of the jobs."""

    elastic: float
    any_gpu: float
    checkpointless: float = 0.0
    crowd: float = 1.0  # factor for the number of jobs
    lends: bool = True


@lru_cache(maxsize=2)
def case(name: str, seed: int, jobs: int) -> Case:
    """The workload of that name; the same arguments give the same jobs."""
    return cell(name).make(seed, jobs)


def cell(name: str) -> Cell:
    """One of `CELLS`, or of a file; ValueError where it is neither."""
    if name in CELLS:
        return CELLS[name]
    file, at, cluster = name.removesuffix(MIXED).rpartition("@")
    if not at:
        raise ValueError(f"{name!r} is neither FILE@CLUSTER nor one of {', '.join(CELLS)}")
    mixed = name.endswith(MIXED)
    goal = JOBS_PER_CPU_S if mixed else None
    make = _of_file(file, cluster, mixed)
    metric = Metric.JOINT if mixed else Metric.AVERAGE
    return Cell("of a file", make, mixed, drawn=mixed, jobs_per_cpu_s=goal, metric=metric)


def _shipped(name: str, cluster: str) -> Callable[[int, int], Case]:
    return _of_file(str(TRACES / name), cluster)


def _of_file(file: str, cluster: str, mixed: bool = False) -> Callable[[int, int], Case]:
    def make(seed: int, _jobs: int) -> Case:
        trace = read_trace(file, "auto", skip_bad=True)
        if mixed:
            draw = Random(f"matrix/{seed}")
            trace = Aryl(elastic=20, checkpointless=0).workload(draw, trace)
            trace = Chronus(mix=MIXES["mix1"]).workload(draw, trace)
        return Case(trace, read_cluster(cluster))

    return make


def _tiresias(seed: int, jobs: int) -> Case:
    """With the skews of its models: some suffer from being spread."""
    return Case(Tiresias(jobs=jobs).workload(Random(f"matrix/{seed}")), read_cluster("15x4"))


def _philly(seed: int, jobs: int) -> Case:
    cluster = read_cluster("8x8")
    return Case(philly_like(jobs, cluster.gpus, seed), cluster)


def _deadlines(mix: str, density: int) -> Callable[[int, int], Case]:
    def make(seed: int, jobs: int) -> Case:
        made = deadline_cases.case(mix, density, seed, jobs * 100 // density)
        return Case(made.trace, deadline_cases.cluster())

    return make


def _aryl(shares: Elastic, mix: Mix | None = None) -> Callable[[int, int], Case]:
    def make(seed: int, jobs: int) -> Case:
        size = jobs / shares.crowd / _ARYL_JOBS
        training = max(8, round(_ARYL_TRAINING * size))  # the widest job has 64 GPUs
        trace = aryl_cases.workload(
            seed, shares.elastic, shares.any_gpu, checkpointless=shares.checkpointless, count=jobs, days=_ARYL_DAYS  # noqa: E501
        )  # fmt: skip
        if mix is not None:
            trace = Chronus(mix=mix).workload(Random(f"matrix/{seed}"), trace)
        inference = round(_ARYL_INFERENCE * size)
        cluster = aryl_cases.cluster(
            seed, lends=shares.lends, training=training, inference=inference
        )
        return Case(trace, cluster)

    return make


def _gpuaas(instance: str, *, kept: bool = False) -> Callable[[int, int], Case]:
    """Nodes are rented by need; `kept`: ten of the dearest, on which a job is fastest, are there
    all the time.
    """

    def make(_seed: int, _jobs: int) -> Case:
        directory = TRACES / "gpuaas"
        trace = read_trace(str(directory / instance / "Lof_Selectjobs.csv.gz"), "auto")
        rented = read_cluster(str(directory / "table_2.toml"))
        return Case(trace, _kept(rented) if kept else rented)

    return make


def _kept(rented: ClusterSpec) -> ClusterSpec:
    dearest = max(rented.catalogue, key=lambda kind: kind.price_per_hour or 0)
    group = NodeGroup(
        name=dearest.name,
        count=rented.rent_at_most or 1,
        gpus=dearest.gpus,
        gpu_type=dearest.gpu_type,
        price_per_hour=dearest.price_per_hour,
    )
    return ClusterSpec(name=f"{group.count} {group.name}, kept", groups=(group,))


_CROWDED = Elastic(elastic=20, any_gpu=100, crowd=_CROWD)
_TYPED = _CROWDED._replace(any_gpu=21)
_PAPER = Elastic(elastic=5, any_gpu=21, checkpointless=20, crowd=_CROWD)

CELLS: Mapping[str, Cell] = MappingProxyType(
    {
        "own-480": Cell("480 jobs as in Tiresias 5.1, 15x4", _shipped("own_480_job.csv", "15x4"), drawn=False),  # noqa: E501
        "tiresias-60": Cell("its simulator's 60 jobs, 2x4", _shipped("tiresias_60_job.csv", "2x4"), drawn=False),  # noqa: E501
        "tiresias": Cell("Tiresias 5.1 with skews, 15x4", _tiresias),
        "philly": Cell("widths and run times like Philly's, load 1.3, 8x8", _philly),
        "chronus-slo": Cell("Chronus 4.1, all with deadlines, 12x8", _deadlines("slo", 100), metric=Metric.MISSES),  # noqa: E501
        "chronus-mix1": Cell("Chronus 4.1, 70 % strict, 30 % best effort, 12x8", _deadlines("mix1", 100), metric=Metric.JOINT),  # noqa: E501
        "chronus-mix2": Cell("Chronus 4.1, 30 % strict, 60 % soft, 120 % density, 12x8", _deadlines("mix2", 120), metric=Metric.JOINT),  # noqa: E501
        "aryl-elastic": Cell(
            "Aryl 7.1, all elastic, no loans", _aryl(Elastic(elastic=100, any_gpu=21, lends=False))
        ),
        "aryl-loans": Cell("Aryl 7.1, a fifth elastic, crowded, with loans", _aryl(_CROWDED)),
        "aryl-paper": Cell("Aryl 7.1, 5 % elastic, 20 % cannot save, with loans", _aryl(_PAPER)),
        "gpuaas-exp": Cell("GPU as a Service 4.1, rented by need", _gpuaas("exp-10-100-0"), drawn=False, rented=True, metric=Metric.BILL),  # noqa: E501
        "gpuaas-high": Cell("the same, three times as fast", _gpuaas("high-10-100-0"), drawn=False, rented=True, metric=Metric.BILL),  # noqa: E501
        "gpuaas-veryhigh": Cell("the same, eight times as fast", _gpuaas("veryhigh-10-100-0"), drawn=False, rented=True, metric=Metric.BILL),  # noqa: E501
        "kept-high": Cell("gpuaas-high on ten nodes all the time", _gpuaas("high-10-100-0", kept=True), drawn=False, metric=Metric.BILL),  # noqa: E501
        "kept-veryhigh": Cell("gpuaas-veryhigh on them", _gpuaas("veryhigh-10-100-0", kept=True), drawn=False, metric=Metric.BILL),  # noqa: E501
        "mixed-mix1": Cell("aryl-loans with the deadlines of mix1", _aryl(_CROWDED, MIXES["mix1"]), mixed=True, metric=Metric.JOINT),  # noqa: E501
        "mixed-mix2": Cell("aryl-loans with the deadlines of mix2", _aryl(_CROWDED, MIXES["mix2"]), mixed=True, metric=Metric.JOINT),  # noqa: E501
        "mixed-typed": Cell("the same, 21 % name no GPU type, deadlines for half", _aryl(_TYPED, _HALF), mixed=True, metric=Metric.JOINT),  # noqa: E501
        "mixed-half": Cell("aryl-paper with deadlines for half of the jobs", _aryl(_PAPER, _HALF), mixed=True, metric=Metric.JOINT),  # noqa: E501
    }
)  # fmt: skip
