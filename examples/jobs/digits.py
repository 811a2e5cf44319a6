"""The handwritten digits that every example trains on (data/digits/ORIGIN.md)."""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scratch import Scratch

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

CLASSES = 10
SIDE = 8
PIXELS = SIDE * SIDE

_FILE = Path(__file__).resolve().parent.parent / "data" / "digits" / "digits.csv.gz"
_TESTED = 297  # the last lines; the first 1,500 are trained on


@dataclass(frozen=True, slots=True)
class Digits:
    """Pixels scaled to 0..1, one image a row, and the digit each one shows."""

    x: Floats
    y: Labels
    x_test: Floats
    y_test: Labels

    def batch(self, rng: np.random.Generator, size: int, scratch: Scratch) -> tuple[Floats, Labels]:
        """`size` images drawn with replacement; they lie in `scratch` until the next batch."""
        drawn = rng.integers(0, len(self.y), size)
        return scratch.rows("batch", self.x, drawn), self.y[drawn]


def load(path: Path = _FILE) -> Digits:
    """Read the data set; about 20 ms."""
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    x, y = table[:, :PIXELS] / 16.0, table[:, PIXELS]
    return Digits(x[:-_TESTED], y[:-_TESTED], x[-_TESTED:], y[-_TESTED:])


def cross_entropy(scores: Floats, y: Labels) -> tuple[float, Floats]:
    """Mean softmax loss over the rows of `scores`, and its gradient."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    exponents = np.exp(shifted)
    totals = exponents.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = float(np.mean(np.log(totals[:, 0]) - shifted[rows, y]))
    gradient = exponents / totals
    gradient[rows, y] -= 1.0
    return loss, gradient / len(y)
