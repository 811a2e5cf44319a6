"""How long a job will take, t(job, type, g), learned from what past ones took (section 2.2).

One linear model for each family of jobs. Its features are the numbers that are known (of the job:
iterations, batch size; of the node: GPUs, GFLOPS, disk), their inverses, and products of two of
these. They are chosen one by one, as long as the cross-validated error falls: forward selection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import NamedTuple

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Floats, Ints

FEWEST = 5  # jobs; as many folds as are dealt
_MOST_FEATURES = 8
_WORTHWHILE = 0.01  # of the error: the least gain of a further feature


class PastRun(NamedTuple):
    """One finished run: its numbers by name, all positive, and what it took. Runs of one `job` are
    dealt to one fold, so that no model is judged by a job that it has seen; "": each is a job of
    its own."""

    numbers: Mapping[str, float]
    time_s: float
    job: str = ""


class Feature(NamedTuple):
    """A product of numbers and inverses: (name, +1 or -1), each."""

    factors: tuple[tuple[str, int], ...]

    def of(self, numbers: Mapping[str, float]) -> float:
        """Its value; KeyError without one of the numbers."""
        value = 1.0
        for name, power in self.factors:
            value *= numbers[name] if power > 0 else 1.0 / numbers[name]
        return value


@dataclass(frozen=True)
class Performance:
    """`weights` of `features` and of 1 (last); `error`: mean absolute percentage error,
    cross-validated.
    """

    features: tuple[Feature, ...]
    weights: tuple[float, ...]
    error: float
    least_s: float  # that was ever seen: no estimate is below half of it

    def time_s(self, numbers: Mapping[str, float]) -> float:
        """The estimate, in seconds."""
        terms = [feature.of(numbers) for feature in self.features] + [1.0]
        total = sum(weight * term for weight, term in zip(self.weights, terms, strict=True))
        return max(float(total), self.least_s / 2)


def fit(runs: Sequence[PastRun], draw: np.random.Generator) -> Performance:
    """Learn from runs of at least five jobs; they are dealt to folds by chance. Raises
    ValueError.
    """
    jobs = {run.job or str(at): 0 for at, run in enumerate(runs)}
    if len(jobs) < FEWEST:
        raise ValueError(f"runs of {len(jobs)} jobs are too few: at least {FEWEST}")
    if any(run.time_s <= 0 or min(run.numbers.values()) <= 0 for run in runs):
        raise ValueError("times and numbers are positive")
    every = features(sorted(runs[0].numbers))
    table = np.array([[feature.of(run.numbers) for feature in every] for run in runs])
    time = np.array([run.time_s for run in runs])
    dealt = draw.permutation(np.arange(len(jobs)) % FEWEST).tolist()
    folds = dict(zip(jobs, dealt, strict=True))
    fold = np.array([folds[run.job or str(at)] for at, run in enumerate(runs)])
    chosen, error = _forward(table, time, fold)
    weights = _weights(table[:, chosen], time)
    return Performance(
        tuple(every[n] for n in chosen), tuple(weights.tolist()), error, float(time.min())
    )


def features(names: Sequence[str]) -> list[Feature]:
    """Numbers, inverses, and products of two of either that do not cancel."""
    single = [(name, power) for name in names for power in (1, -1)]
    pairs = [
        (first, second)
        for first, second in combinations_with_replacement(single, 2)
        if first[0] != second[0] or first[1] == second[1]
    ]
    return [Feature((one,)) for one in single] + [Feature(pair) for pair in pairs]


def _forward(table: Floats, time: Floats, fold: Ints) -> tuple[list[int], float]:
    """The columns that were taken, in order, and the error with them."""
    chosen: list[int] = []
    error = _error(table[:, []], time, fold)
    while len(chosen) < min(_MOST_FEATURES, table.shape[1]):
        tried = [
            (_error(table[:, [*chosen, n]], time, fold), n)
            for n in range(table.shape[1])
            if n not in chosen
        ]
        best, n = min(tried)
        if best > error * (1 - _WORTHWHILE):
            break
        chosen.append(n)
        error = best
    return chosen, error


def _error(table: Floats, time: Floats, fold: Ints) -> float:
    """Mean absolute percentage error of runs that the weights have not seen."""
    errors = []
    for n in range(FEWEST):
        out = fold == n
        guess = _with_one(table[out]) @ _weights(table[~out], time[~out])
        errors.append(np.abs(guess - time[out]) / time[out])
    return float(np.concatenate(errors).mean())


def _weights(table: Floats, time: Floats) -> Floats:
    """Least squares of the relative error, columns scaled to the same size."""
    rows = _with_one(table) / time[:, None]
    scale = np.maximum(np.abs(rows).max(axis=0), 1e-300)
    found: Floats = np.linalg.lstsq(rows / scale, np.ones(len(time)), rcond=None)[0] / scale
    return found


def _with_one(table: Floats) -> Floats:
    return np.hstack([table, np.ones((len(table), 1))])
