"""Analysis of covariance with one factor and one covariate, as in the path relinking paper.

The model is response = level of the group + slope x covariate + error. `Ancova.groups` tests that
all levels are equal, `Ancova.slopes` that one slope is enough for all groups. Without that the
levels cannot be compared. `Ancova.normal` is the test of Shapiro and Wilk on the residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Matrix = NDArray[np.float64]


class FTest(NamedTuple):
    """F, its degrees of freedom, and the chance of a larger one if nothing differs."""

    value: float
    between: int
    within: int
    chance: float


class Ancova(NamedTuple):
    """The three tests; `normal` is a chance alone."""

    groups: FTest
    slopes: FTest
    normal: float


class Observation(NamedTuple):
    """One run."""

    group: str
    covariate: float
    response: float


def ancova(seen: Sequence[Observation]) -> Ancova:
    """ValueError with fewer than two groups, one value of the covariate, or too few runs."""
    names = sorted({one.group for one in seen})
    covariate = np.array([one.covariate for one in seen])
    response = np.array([one.response for one in seen])
    if len(names) < 2 or len(set(covariate)) < 2 or len(seen) <= 2 * len(names):
        raise ValueError("two groups, two values of the covariate, and more runs than parameters")
    group = np.array([[one.group == name for name in names] for one in seen], dtype=float)
    centred = (covariate - covariate.mean())[:, None]
    alone = np.hstack([np.ones((len(seen), 1)), centred])
    levels = np.hstack([group, centred])
    own_slopes = np.hstack([group, group * centred])
    residuals = response - levels @ np.linalg.lstsq(levels, response, rcond=None)[0]
    return Ancova(
        _f_test(alone, levels, response),
        _f_test(levels, own_slopes, response),
        float(stats.shapiro(residuals).pvalue),
    )


def _f_test(small: Matrix, large: Matrix, response: Matrix) -> FTest:
    """Whether the larger model explains more than chance would."""
    between = large.shape[1] - small.shape[1]
    within = len(response) - large.shape[1]
    explained = _squares(small, response) - _squares(large, response)
    value = explained / between / (_squares(large, response) / within)
    return FTest(float(value), between, within, float(stats.f.sf(value, between, within)))


def _squares(model: Matrix, response: Matrix) -> float:
    left = response - model @ np.linalg.lstsq(model, response, rcond=None)[0]
    return float(left @ left)
