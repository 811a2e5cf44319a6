#!/usr/bin/env python3
"""Softmax regression on the pixels and all their pairwise products."""

import argparse

import one_thread  # noqa: F401 - before numpy

# isort: split
import numpy as np

import digits
import loop
from digits import Floats


class Softmax:
    """Linear scores on quadratic features, trained by plain SGD with weight decay."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rng = np.random.default_rng(options.seed)
        self._data = digits.load()
        self._batch, self._rate, self._decay = options.batch, options.rate, options.decay
        self._pairs = np.triu_indices(digits.PIXELS)
        width = digits.PIXELS + len(self._pairs[0])
        self._weights = np.zeros((width, digits.CLASSES))
        self._bias = np.zeros(digits.CLASSES)

    def train_step(self) -> float:
        x, y = self._data.batch(self.rng, self._batch)
        seen = self._features(x)
        loss, error = digits.cross_entropy(seen @ self._weights + self._bias, y)
        self._weights -= self._rate * (seen.T @ error + self._decay * self._weights)
        self._bias -= self._rate * error.sum(axis=0)
        return loss

    def arrays(self) -> dict[str, Floats]:
        return {"weights": self._weights, "bias": self._bias}

    def accuracy(self) -> float:
        scores = self._features(self._data.x_test) @ self._weights + self._bias
        return float(np.mean(scores.argmax(axis=1) == self._data.y_test))

    def _features(self, x: Floats) -> Floats:
        left, right = self._pairs
        return np.hstack([x, x[:, left] * x[:, right]])


def main() -> None:
    parser = loop.arguments(__doc__, steps=1000, batch=256)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--decay", type=float, default=1e-4)
    options = parser.parse_args()
    loop.train(Softmax(options), options)


if __name__ == "__main__":
    main()
