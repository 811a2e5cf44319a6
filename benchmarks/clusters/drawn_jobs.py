"""Jobs for many clusters, drawn from Microsoft's Philly log: sizes, times and uneven homes."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

_LOG = Path(__file__).parents[2] / "tests" / "data" / "traces" / "philly_twentieth.csv.gz"
DAY_S = 86_400.0
# The submissions of an hour over those of the mean hour: a night has half, a day one and a half.
_SWING = 0.5
Numbers = NDArray[np.float64]


class DrawnJobs(NamedTuple):
    """One entry of each array for each job, in the order of submission. Times in seconds."""

    submit_s: Numbers
    run_s: Numbers
    foretold_s: Numbers  # the run time as its forecast has it
    gpus: NDArray[np.int64]
    home: NDArray[np.int64]  # the cluster of its user
    due_s: Numbers  # its deadline; inf: none


def draw_jobs(
    seed: int,
    *,
    jobs: int,
    days: float,
    members: int,
    gpus: int,
    load: float,
    longest_s: float,
    error: float,
    with_deadline: float,
) -> DrawnJobs:
    """Draw `jobs` jobs of `days` days.

    Sizes and run times are pairs of the log. Run times are scaled, and cut at `longest_s`, so that
    all jobs together are `load` of the GPUs of `members` clusters with `gpus` each. Homes follow
    Zipf's law with the exponent 0.5. `error` is the standard deviation of the logarithm of foretold
    over real times.
    `with_deadline` is the share of jobs with a deadline, 1.5 to 4 foretold times after submission.
    """
    rng = np.random.default_rng(seed)
    sizes, times = _pairs(gpus)
    drawn = rng.integers(0, len(sizes), jobs)
    wanted, run_s = sizes[drawn], times[drawn]
    run_s = _scaled(run_s, wanted, load * members * gpus * days * DAY_S, longest_s)
    shares = 1.0 / np.sqrt(np.arange(1, members + 1))
    foretold_s = run_s * np.exp(rng.normal(0.0, error, jobs))
    submit_s = np.sort(_waved(rng.uniform(0.0, days * DAY_S, jobs)))
    due_s = submit_s + foretold_s * rng.uniform(1.5, 4.0, jobs) + 600.0
    due_s[rng.uniform(size=jobs) >= with_deadline] = np.inf
    home = rng.choice(members, jobs, p=shares / shares.sum())
    return DrawnJobs(submit_s, run_s, foretold_s, wanted, home, due_s)


def _pairs(most: int) -> tuple[NDArray[np.int64], Numbers]:
    """The GPUs and run times of the log's jobs that fit into a cluster."""
    with gzip.open(_LOG, "rt") as file:
        rows = [(int(row["num_gpus"]), float(row["duration_s"])) for row in csv.DictReader(file)]
    fitting = [(gpus, run_s) for gpus, run_s in rows if 0 < gpus <= most and run_s > 0]
    return np.array([one for one, _ in fitting]), np.array([one for _, one in fitting])


def _scaled(run_s: Numbers, wanted: NDArray[np.int64], total_s: float, longest_s: float) -> Numbers:
    """Run times in proportion, but for the longest, with this sum of GPU-seconds.

    ValueError: jobs of the longest time would be fewer GPU-seconds.
    """
    if longest_s * float(wanted.sum()) <= total_s:
        raise ValueError("too few jobs for this load: more jobs, or longer ones")

    def beyond(scale: float) -> float:
        return float(np.sum(np.minimum(run_s * scale, longest_s) * wanted)) - total_s

    high = 1.0
    while beyond(high) < 0.0:
        high *= 2.0
    scale: float = brentq(beyond, 0.0, high)
    return np.minimum(run_s * scale, longest_s)


def _waved(at_s: Numbers) -> Numbers:
    """Move instants of an even day so that their density is 1 + SWING times a sine of the day."""
    day = 2.0 * np.pi / DAY_S
    moved = at_s.copy()
    for _ in range(30):  # a fixed point: moved - SWING/day * cos = at
        moved = at_s + _SWING / day * (np.cos(day * moved) - 1.0)
    return moved
