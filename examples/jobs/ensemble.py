#!/usr/bin/env python3
"""An ensemble of logistic classifiers, each on its own bootstrap sample and its own pixels."""

import argparse

import one_thread  # noqa: F401 - before numpy

# isort: split
import numpy as np

import digits
import loop
from digits import Floats
from scratch import Scratch

_ONE_HOT = np.eye(digits.CLASSES)


class Ensemble:
    """`members` one-against-all classifiers, trained side by side; they vote by mean
    probability.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.rng = np.random.default_rng(options.seed)
        self._data = digits.load()
        self._scratch = Scratch()
        self._batch, self._rate = options.batch, options.rate
        members = options.members
        self._sample = self.rng.integers(0, len(self._data.y), (members, len(self._data.y)))
        self._mask = (self.rng.random((members, 1, digits.PIXELS)) < options.pixels) * 1.0
        self._weights = np.zeros((members, digits.PIXELS, digits.CLASSES))
        self._bias = np.zeros((members, 1, digits.CLASSES))

    def train_step(self) -> float:
        drawn = self.rng.integers(0, self._sample.shape[1], self._batch)
        lines = self._sample[:, drawn]
        x = self._scratch.rows("x", self._data.x, lines)
        x *= self._mask
        truth = self._scratch.rows("truth", _ONE_HOT, self._data.y[lines])
        scores, error = (self._scratch.floats(name, *truth.shape) for name in ("scores", "error"))
        np.matmul(x, self._weights, out=scores)
        scores += self._bias
        _sigmoid(scores, error)
        error -= truth
        error /= self._batch
        slope = self._scratch.floats("slope", *self._weights.shape)
        np.matmul(x.transpose(0, 2, 1), error, out=slope)
        slope *= self._rate
        self._weights -= slope
        self._bias -= self._rate * error.sum(axis=1, keepdims=True)
        truth *= scores
        losses = np.logaddexp(0.0, scores, out=scores)
        losses -= truth
        return float(np.mean(losses))

    def arrays(self) -> dict[str, Floats]:
        # The samples and masks are drawn again from the seed, so they need no place here.
        return {"weights": self._weights, "bias": self._bias}

    def accuracy(self) -> float:
        x = self._data.x_test[None] * self._mask
        scores = x @ self._weights + self._bias
        votes = _sigmoid(scores, scores).mean(axis=0)
        return float(np.mean(votes.argmax(axis=1) == self._data.y_test))


def _sigmoid(scores: Floats, out: Floats) -> Floats:
    """The logistic function of every score, written to `out`."""
    np.multiply(scores, 0.5, out=out)
    np.tanh(out, out=out)
    out += 1.0
    out *= 0.5
    return out


def main() -> None:
    parser = loop.arguments(__doc__, steps=600, batch=128)
    parser.add_argument("--members", type=int, default=32)
    parser.add_argument("--pixels", type=float, default=0.6, help="part of the pixels each sees")
    parser.add_argument("--rate", type=float, default=1.0)
    options = parser.parse_args()
    loop.train(Ensemble(options), options)


if __name__ == "__main__":
    main()
