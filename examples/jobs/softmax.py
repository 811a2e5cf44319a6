#!/usr/bin/env python3
"""Softmax regression on the pixels and all their pairwise products."""

import argparse

import one_thread  # noqa: F401 - before numpy

# isort: split
import numpy as np

import digits
import loop
from digits import Floats, Labels
from scratch import Scratch


class Softmax:
    """Linear scores on quadratic features, trained by plain SGD with weight decay."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rng = np.random.default_rng(options.seed)
        self._data = digits.load()
        self._scratch = Scratch()
        self._batch, self._rate, self._decay = options.batch, options.rate, options.decay
        left, right = np.triu_indices(digits.PIXELS)
        self._pairs = (("left", left), ("right", right))
        width = digits.PIXELS + len(left)
        self._weights = np.zeros((width, digits.CLASSES))
        self._bias = np.zeros(digits.CLASSES)

    def train_step(self) -> float:
        x, y = self._data.batch(self.rng, self._batch, self._scratch)
        seen = self._features(x)
        loss, error = digits.cross_entropy(seen @ self._weights + self._bias, y)
        slope = self._scratch.floats("slope", *self._weights.shape)
        decay = self._scratch.floats("decay", *self._weights.shape)
        np.matmul(seen.T, error, out=slope)
        slope += np.multiply(self._weights, self._decay, out=decay)
        slope *= self._rate
        self._weights -= slope
        self._bias -= self._rate * error.sum(axis=0)
        return loss

    def arrays(self) -> dict[str, Floats]:
        return {"weights": self._weights, "bias": self._bias}

    def accuracy(self) -> float:
        scores = self._features(self._data.x_test) @ self._weights + self._bias
        return float(np.mean(scores.argmax(axis=1) == self._data.y_test))

    def _features(self, x: Floats) -> Floats:
        seen = self._scratch.floats("seen", len(x), len(self._weights))
        seen[:, : digits.PIXELS] = x
        one, other = (self._columns(name, x, which) for name, which in self._pairs)
        np.multiply(one, other, out=seen[:, digits.PIXELS :])
        return seen

    def _columns(self, name: str, x: Floats, which: Labels) -> Floats:
        """`x[:, which]`."""
        columns = self._scratch.floats(name, len(x), len(which))
        np.take(x, which, axis=1, out=columns, mode="clip")
        return columns


def main() -> None:
    parser = loop.arguments(__doc__, steps=1000, batch=256)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--decay", type=float, default=1e-4)
    options = parser.parse_args()
    loop.train(Softmax(options), options)


if __name__ == "__main__":
    main()
