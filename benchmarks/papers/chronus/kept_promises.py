"""How many promised deadlines hold when estimates are wrong, and what that costs.

    python -m benchmarks.papers.chronus.kept_promises [--noise N]... [--choice "KEY=VALUE ..."]... \
        [--policy NAME]... [--fit] [--jobs N] [--trace FILE@NODESxGPUS/PARTS]

Run times are known after a trial, with an error: `noise` is its standard deviation as a part of the
run time. Workloads are the `mix2` ones of `deadline_cases` at 120 %, with seeds of their own. They
were written down before any margin was chosen: `FIT` is for choosing, `CHECK` for judging. A file
with deadlines is cut into so many parts by turns. Each part has the load of the whole on as many
times fewer GPUs. Its first part is for choosing, and the next three are for judging.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from benchmarks.papers.deadline_cases import NOISE_DENSITY, NOISE_MIX, case, cluster
from dlq_simulator.metrics import ReplayOutcome
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec, read_cluster

FIT, CHECK = (8601, 8602, 8603), (8701, 8702, 8703)
NOISES = ("0", "0.1", "0.2", "0.4")
JOBS = 400  # at 100 %
MODELS = 12  # of drawn jobs: so many families
JUDGED_PARTS = 3


class Kept(NamedTuple):
    """Counts of jobs with deadlines: all, with a promise, and with a broken promise. `late_s` is of
    the latest. `wdmr` is the weighted miss rate of all deadlines.
    """

    asked: int
    promised: int
    missed: int
    late_s: float
    wdmr: float
    cpu_s: float


Workload = Callable[[], tuple[Trace, ClusterSpec]]


def main() -> None:
    """One line for each policy, choice and noise: sums over the workloads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--noise", action="append")
    parser.add_argument("--choice", action="append", help="settings; default: those of the policy")
    parser.add_argument("--policy", action="append")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--fit", action="store_true", help="the workloads for choosing")
    parser.add_argument("--trace", help="FILE@NODESxGPUS/PARTS")
    asked = parser.parse_args()
    print(
        "policy   choice                    noise  asked  promised  missed   kept  latest    wDMR"
    )
    for policy in asked.policy or ("chronus", "dlq"):
        for words in asked.choice or ("",):
            for noise in asked.noise or NOISES:
                runs = [
                    kept(one, policy, (*words.split(), f"noise={noise}"))
                    for one in workloads(asked.trace, asked.jobs, fit=asked.fit)
                ]
                print(f"{policy:<8} {words:<25} {noise:<5}  {_line(runs)}", flush=True)


def workloads(trace: str | None, jobs: int, *, fit: bool) -> list[Workload]:
    """Those for choosing, or those for judging."""
    if trace is None:
        return [partial(_drawn, seed, jobs) for seed in (FIT if fit else CHECK)]
    file, _, shape = trace.rpartition("@")
    nodes, _, parts = shape.partition("/")
    turns = range(1) if fit else range(1, 1 + JUDGED_PARTS)
    return [partial(_part, file, nodes, int(parts), turn) for turn in turns]


def kept(one: Workload, policy: str, words: Sequence[str]) -> Kept:
    """One replay."""
    return replayed(*one(), policy, words)


def drawn(seed: int, jobs: int, policy: str, words: Sequence[str]) -> dict[str, float]:
    """One replay of a drawn workload, as plain values (`benchmarks.reproduce`)."""
    return replayed(*_drawn(seed, jobs), policy, words)._replace(cpu_s=0.0)._asdict()


def replayed(trace: Trace, nodes: ClusterSpec, policy: str, words: Sequence[str]) -> Kept:
    """One replay of any workload."""
    (chosen,) = read_settings([policy], ["know=profiled", *words], 0)
    began_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    result = replay(trace, nodes, chosen)
    found = result.metrics
    late_s = [_late_s(outcome) for outcome in result.outcomes]
    return Kept(
        asked=sum(row.kind != "be" for row in trace.jobs),
        promised=found.guaranteed or 0,
        missed=found.promises_missed or 0,
        late_s=max(late_s, default=0.0),
        wdmr=found.wdmr or 0.0,
        cpu_s=resource.getrusage(resource.RUSAGE_SELF).ru_utime - began_s,
    )


# --- helpers, in order of use ---------------------------------------------------------------------


def _drawn(seed: int, jobs: int) -> tuple[Trace, ClusterSpec]:
    trace = case(NOISE_MIX, NOISE_DENSITY, seed, jobs).trace
    rows = [replace(row, model=f"m{at % MODELS}") for at, row in enumerate(trace.jobs)]
    return Trace.of(trace.path, rows), cluster()


def _part(file: str, nodes: str, parts: int, turn: int) -> tuple[Trace, ClusterSpec]:
    shape = read_cluster(nodes)
    rows = [row for row in read_trace(file, "auto").jobs if row.num_gpus <= shape.gpus]
    return Trace.of(f"{file}, part {turn}", rows[turn::parts]), shape


def _late_s(outcome: ReplayOutcome) -> float:
    if outcome.promised_s is None:
        return 0.0
    return max(0.0, float(outcome.jct_s) - float(outcome.promised_s))


def _line(runs: Sequence[Kept]) -> str:
    asked, promised, missed, _, wdmr, cpu_s = (sum(each) for each in zip(*runs, strict=True))
    share = 1.0 - missed / promised if promised else 1.0
    latest_s = max(run.late_s for run in runs)
    return (
        f"{asked:5d}  {promised:8d}  {missed:6d}  {share:6.2%}  {latest_s:5.0f} s  "
        f"{wdmr / len(runs):6.2%}  ({cpu_s:.0f} s of CPU)"
    )


if __name__ == "__main__":
    main()
