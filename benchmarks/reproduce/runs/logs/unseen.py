"""Run times of jobs that nobody has seen: learned trees beside the median of jobs like them."""

from __future__ import annotations

from importlib import import_module
from statistics import median

from benchmarks.profiler.unseen_run_times import (
    errors_of_medians,
    errors_of_trees,
    read,
    splits,
    told,
)
from benchmarks.reproduce.logs import path_of


def unseen(log: str, whole: bool, split: int) -> dict[str, str | float]:
    """Median errors of the logarithm, on one of the splits."""
    jobs = read(path_of(log, whole))
    known = told(jobs)
    name, (fitted, judged) = [*splits(jobs).items()][split]
    trees = import_module("sklearn.ensemble").HistGradientBoostingRegressor
    model = trees(loss="absolute_error", max_iter=200, random_state=0)
    return {
        "name": name,
        "trees": median(errors_of_trees(model, jobs, known, fitted, judged)),
        "median of jobs like it": median(errors_of_medians(jobs, known, judged)),
    }
