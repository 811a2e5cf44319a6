#!/usr/bin/env python3
"""Mini-batch k-means: many prototypes of each digit, labelled by the images they attract."""

import argparse

import one_thread  # noqa: F401 - before numpy

# isort: split
import numpy as np

import digits
import loop
from digits import Floats, Labels
from scratch import Scratch


class KMeans:
    """Each centre moves to the running mean of the images it has won."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rng = np.random.default_rng(options.seed)
        self._data = digits.load()
        self._scratch = Scratch()
        self._batch = options.batch
        first = self.rng.choice(len(self._data.y), options.clusters, replace=False)
        self._centres = self._data.x[first]
        self._won = np.ones(options.clusters)

    def train_step(self) -> float:
        """The loss is the mean squared distance to the nearest centre."""
        x, _ = self._data.batch(self.rng, self._batch, self._scratch)
        nearest, loss = self._assign(x)
        shape = len(x), len(self._won)
        member = self._scratch.floats("member", *shape)
        member[...] = np.equal(
            nearest[:, None], np.arange(len(self._won)), out=self._scratch.bools("is_its", *shape)
        )
        gained = member.sum(axis=0)
        self._won += gained
        self._centres += (member.T @ x - gained[:, None] * self._centres) / self._won[:, None]
        return loss

    def arrays(self) -> dict[str, Floats]:
        return {"centres": self._centres, "won": self._won}

    def accuracy(self) -> float:
        """Each centre stands for the digit that most of its training images show."""
        votes = np.zeros((len(self._won), digits.CLASSES))
        np.add.at(votes, (self._assign(self._data.x)[0], self._data.y), 1.0)
        nearest, _ = self._assign(self._data.x_test)
        return float(np.mean(votes.argmax(axis=1)[nearest] == self._data.y_test))

    def _assign(self, x: Floats) -> tuple[Labels, float]:
        lengths = (self._centres**2).sum(axis=1)
        squares = np.square(x, out=self._scratch.floats("squares", *x.shape))
        distances = self._scratch.floats("distances", len(x), len(lengths))
        np.matmul(x, self._centres.T, out=distances)
        distances *= 2.0
        np.subtract(squares.sum(axis=1)[:, None], distances, out=distances)
        distances += lengths
        return distances.argmin(axis=1), float(distances.min(axis=1).mean())


def main() -> None:
    parser = loop.arguments(__doc__, steps=600, batch=1024)
    parser.add_argument("--clusters", type=int, default=200)
    options = parser.parse_args()
    loop.train(KMeans(options), options)


if __name__ == "__main__":
    main()
