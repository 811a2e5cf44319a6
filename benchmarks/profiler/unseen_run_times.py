"""Whether learned trees tell the run time of a job better than the median of jobs like it.

    python -m benchmarks.profiler.unseen_run_times --trace philly.csv[.gz] [--json]

The trace has the columns vc, submit_time_s, num_gpus and duration_s: Philly, as petuum/adaptdl
condensed it. It names no users, so a family is a virtual cluster with a number of GPUs. Each job is
told by what had ended before its submission alone.

- The median of the last 20 runs of its family. With less than five runs its virtual cluster counts,
  then its size, then all jobs.
- Gradient-boosted trees of scikit-learn. They know these four medians, the last three runs of the
  family, their spread, the GPUs, the hour and the day. The loss is the absolute error of the
  logarithm.

Trees are fitted on the first 60 % of the jobs and judged on the rest. Then they are fitted on two
thirds of the virtual clusters and judged on the others. scikit-learn is no part of dlq: install it
besides.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from importlib import import_module
from math import log, nan
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any, NamedTuple

from benchmarks.support.report import Report

KEPT, FEWEST, LAST = 20, 5, 3
GUESS_S = 600.0  # before anything has ended
FITTED = 0.6  # of the jobs in time
PARTS = 3  # of the virtual clusters, each held out once


class Past(NamedTuple):
    """A job of the trace."""

    submit_s: float
    vc: str
    gpus: int
    run_s: float


class Told(NamedTuple):
    """The knowledge of a job at its submission. `numbers` are for the trees, and `like_it` is the
    logarithm of the median of jobs like it.
    """

    numbers: tuple[float, ...]
    like_it: float


def told(jobs: Sequence[Past]) -> list[Told]:
    """In the order of submission."""
    running: list[tuple[float, int]] = []
    runs: dict[tuple[object, ...], deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
    found = []
    for number, job in enumerate(jobs):
        while running and running[0][0] <= job.submit_s:
            ended = jobs[heappop(running)[1]]
            for key in _groups(ended):
                runs[key].append(log(ended.run_s))
        heappush(running, (job.submit_s + job.run_s, number))
        groups = [runs[key] for key in _groups(job)]
        medians = [median(one) if len(one) >= FEWEST else nan for one in groups]
        like_it = next((one for one in medians if one == one), log(GUESS_S))
        family = groups[0]
        last = [family[-at] if len(family) >= at else nan for at in range(1, LAST + 1)]
        spread = pstdev(family) if len(family) >= FEWEST else nan
        when = (job.submit_s / 3600.0 % 24.0, job.submit_s / 86_400.0 % 7.0)
        found.append(Told((float(job.gpus), *when, *medians, *last, spread), like_it))
    return found


def read(path: Path) -> list[Past]:
    """By their submission."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    rows = [_past(row) for row in csv.DictReader(text.splitlines())]
    return sorted(row for row in rows if row.run_s > 0.0)


def main() -> None:
    """The median error of both on jobs that neither has seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trace", type=Path, required=True)
    report = Report.begin("profiler.unseen_run_times", parser)
    try:
        trees = import_module("sklearn.ensemble").HistGradientBoostingRegressor
    except ImportError:
        sys.exit("this benchmark needs scikit-learn: pip install scikit-learn")
    jobs = read(report.options.trace)
    known = told(jobs)
    for name, (fitted, judged) in splits(jobs).items():
        model = trees(loss="absolute_error", max_iter=200, random_state=0)
        _judge(report, name, model, jobs, known, fitted, judged)
    report.end()


def splits(jobs: Sequence[Past]) -> dict[str, tuple[Sequence[int], Sequence[int]]]:
    """Jobs for fitting, and others for judging, by what they are."""
    places = {vc: at for at, vc in enumerate(sorted({job.vc for job in jobs}))}
    early = round(FITTED * len(jobs))
    every = range(len(jobs))
    cases: dict[str, tuple[Sequence[int], Sequence[int]]] = {
        "the later 40 % of the jobs": (every[:early], every[early:])
    }
    for part in range(PARTS):
        held = [at for at in every if places[jobs[at].vc] % PARTS == part]
        others = [at for at in every if places[jobs[at].vc] % PARTS != part]
        cases[f"virtual clusters held out, part {part + 1}"] = (others, held)
    return cases


def errors_of_medians(
    jobs: Sequence[Past], known: Sequence[Told], judged: Iterable[int]
) -> list[float]:
    """Of the logarithm, job by job."""
    return [abs(known[at].like_it - log(jobs[at].run_s)) for at in judged]


def errors_of_trees(
    model: Any,
    jobs: Sequence[Past],
    known: Sequence[Told],
    fitted: Iterable[int],
    judged: Sequence[int],
) -> list[float]:
    """The same of a model of scikit-learn, which is fitted first."""
    rows = [*fitted]
    model.fit([known[at].numbers for at in rows], [log(jobs[at].run_s) for at in rows])
    found = model.predict([known[at].numbers for at in judged])
    return [abs(one - log(jobs[at].run_s)) for one, at in zip(found, judged, strict=True)]


def _judge(
    report: Report,
    name: str,
    model: Any,
    jobs: Sequence[Past],
    known: Sequence[Told],
    fitted: Iterable[int],
    judged: Sequence[int],
) -> None:
    ours = errors_of_trees(model, jobs, known, fitted, judged)
    theirs = errors_of_medians(jobs, known, judged)
    report.figure(
        f"{name}: median error of trees over that of the median of jobs like it",
        median(ours) / median(theirs), "x", at_most=1.0,
        note=f"|ln| {median(ours):.3f} and {median(theirs):.3f}, mean {fmean(ours):.2f} and "
             f"{fmean(theirs):.2f}; {len(judged):,} jobs",
    )  # fmt: skip


def _past(row: Mapping[str, str]) -> Past:
    submit_s, run_s = float(row["submit_time_s"]), float(row["duration_s"])
    return Past(submit_s, row["vc"], int(row["num_gpus"]), run_s)


def _groups(job: Past) -> tuple[tuple[object, ...], ...]:
    return (job.vc, job.gpus), (job.vc,), ("", job.gpus), ()


if __name__ == "__main__":
    main()
