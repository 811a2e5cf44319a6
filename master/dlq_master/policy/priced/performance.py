"""Predicted run times t(job, type, g), learned from past runs (section 2.2 of the paper).

Each family of jobs has one linear model. Candidate features are the known numbers, their inverses,
and products of two of these. Numbers of the job are its iterations and batch size; numbers of the
node its GPUs, GFLOPS and disk. Forward selection adds one feature at a time while the
cross-validated error falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import NamedTuple

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Bools, Floats, Ints

FEWEST = 5  # jobs that a model needs, and the number of folds
_MOST_FEATURES = 8
_WORTHWHILE = 0.01  # of the error: the least gain of a further feature
_ALIKE = 1e-10  # a column with a smaller independent part repeats taken columns
_SMALL = 1e-300


class PastRun(NamedTuple):
    """A finished run: its positive numbers by name, and its time in seconds.

    Runs of one `job` go to one fold, so that no model is judged by a job that it has seen. "": the
    run is a job of its own.
    """

    numbers: Mapping[str, float]
    time_s: float
    job: str = ""


class Feature(NamedTuple):
    """A product of factors (name, +1 or -1): numbers and inverses of numbers."""

    factors: tuple[tuple[str, int], ...]

    def of(self, numbers: Mapping[str, float]) -> float:
        """Its value. KeyError: a number is missing."""
        value = 1.0
        for name, power in self.factors:
            value *= numbers[name] if power > 0 else 1.0 / numbers[name]
        return value

    def column(self, numbers: Mapping[str, Floats]) -> Floats:
        """Its values for all runs."""
        values = [numbers[name] ** power for name, power in self.factors]
        return values[0] if len(values) == 1 else values[0] * values[1]


@dataclass(frozen=True)
class Performance:
    """A fitted model: `weights` of `features` and, last, of the constant 1.

    `error`: the mean absolute percentage error of cross-validation.
    """

    features: tuple[Feature, ...]
    weights: tuple[float, ...]
    error: float
    least_s: float  # the shortest run seen; no estimate is below half of it

    def time_s(self, numbers: Mapping[str, float]) -> float:
        """The predicted run time in seconds."""
        terms = [feature.of(numbers) for feature in self.features] + [1.0]
        total = sum(weight * term for weight, term in zip(self.weights, terms, strict=True))
        return max(float(total), self.least_s / 2)


def fit(runs: Sequence[PastRun], draw: np.random.Generator) -> Performance:
    """Fit a model to runs of at least FEWEST jobs; `draw` deals jobs to folds. ValueError: bad or
    too few runs.
    """
    jobs = {run.job or str(at): 0 for at, run in enumerate(runs)}
    if len(jobs) < FEWEST:
        raise ValueError(f"runs of {len(jobs)} jobs are too few: at least {FEWEST}")
    if any(run.time_s <= 0 or min(run.numbers.values()) <= 0 for run in runs):
        raise ValueError("times and numbers are positive")
    every = features(sorted(runs[0].numbers))
    numbers = {
        name: np.array([run.numbers[name] for run in runs], dtype=np.float64)
        for name in runs[0].numbers
    }
    table = np.column_stack([feature.column(numbers) for feature in every])
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
    """All candidate features: numbers, inverses, and products of two that do not cancel."""
    single = [(name, power) for name in names for power in (1, -1)]
    pairs = [
        (first, second)
        for first, second in combinations_with_replacement(single, 2)
        if first[0] != second[0] or first[1] == second[1]
    ]
    return [Feature((one,)) for one in single] + [Feature(pair) for pair in pairs]


def _forward(table: Floats, time: Floats, fold: Ints) -> tuple[list[int], float]:
    """The places of the selected columns, in order, and the cross-validated error with them."""
    rows = _with_one(table) / time[:, None]
    rows = rows / np.maximum(np.abs(rows).max(axis=0), _SMALL)
    folds = [_Fold(rows[fold != n], rows[fold == n]) for n in range(FEWEST)]
    chosen: list[int] = []
    error = sum(float(np.abs(one.miss).sum()) for one in folds) / len(time)
    while len(chosen) < min(_MOST_FEATURES, table.shape[1]):
        errors = sum((one.errors() for one in folds), np.zeros(table.shape[1])) / len(time)
        errors[chosen] = np.inf
        n = int(errors.argmin())
        if errors[n] > error * (1 - _WORTHWHILE):
            break
        chosen.append(n)
        error = float(errors[n])
        for one in folds:
            one.take(n)
    return chosen, error


class _Fold:
    """Least squares of the relative error on the runs outside one fold.

    All columns are kept orthogonal to the selected ones. So the gain of one more column is one
    product, and the errors of all candidates are found together.
    """

    def __init__(self, seen: Floats, unseen: Floats) -> None:
        """`seen` and `unseen`: the runs outside and inside the fold. Their last column, the
        constant, is selected.
        """
        self._seen, self._unseen = seen, unseen
        self._left, self.miss = np.ones(len(seen)), np.ones(len(unseen))
        self._own = (seen**2).sum(axis=0)
        self.take(-1)

    def errors(self) -> Floats:
        """The summed error on the unseen runs with each column added."""
        gain, able = self._gains()
        off = np.abs(self.miss[:, None] - self._unseen * gain).sum(axis=0)
        found: Floats = np.where(able, off, np.inf)[:-1]
        return found

    def take(self, n: int) -> None:
        """Select a column."""
        gain, _ = self._gains()
        seen, unseen = self._seen[:, n].copy(), self._unseen[:, n].copy()
        self._left = self._left - gain[n] * seen
        self.miss = self.miss - gain[n] * unseen
        part = seen @ self._seen / (seen @ seen)
        self._seen = self._seen - np.outer(seen, part)
        self._unseen = self._unseen - np.outer(unseen, part)

    def _gains(self) -> tuple[Floats, Bools]:
        """The weight of each column, and whether it is independent of the selected ones."""
        norm = (self._seen**2).sum(axis=0)
        able: Bools = norm > _ALIKE * self._own
        gain: Floats = self._left @ self._seen / np.where(able, norm, 1.0)
        return np.where(able, gain, 0.0), able


def _weights(table: Floats, time: Floats) -> Floats:
    """Least squares of the relative error; columns are scaled to the same size."""
    rows = _with_one(table) / time[:, None]
    scale = np.maximum(np.abs(rows).max(axis=0), _SMALL)
    found: Floats = np.linalg.lstsq(rows / scale, np.ones(len(time)), rcond=None)[0] / scale
    return found


def _with_one(table: Floats) -> Floats:
    return np.hstack([table, np.ones((len(table), 1))])
