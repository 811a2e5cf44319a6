#!/usr/bin/env python3
"""A perceptron with one hidden layer, trained by SGD with momentum."""

import argparse

import one_thread  # noqa: F401 - before numpy

# isort: split
import numpy as np

import digits
import loop
from digits import Floats, Labels
from scratch import Scratch


class Mlp:
    """64 - hidden - 10 with ReLU; all parameters lie in one flat vector, the layers are views."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rng = np.random.default_rng(options.seed)
        self.data = digits.load()
        self.scratch = Scratch()
        self._batch, self._rate, self._momentum = options.batch, options.rate, options.momentum
        shapes = [
            (digits.PIXELS, options.hidden),
            (options.hidden,),
            (options.hidden, digits.CLASSES),
            (digits.CLASSES,),
        ]
        self._parameters = np.zeros(sum(int(np.prod(shape)) for shape in shapes))
        self._velocity = np.zeros_like(self._parameters)
        self._gradient = np.zeros_like(self._parameters)
        self._layers = _views(self._parameters, shapes)
        self._slopes = _views(self._gradient, shapes)
        self._layers[0][...] = self.rng.normal(0.0, (2 / digits.PIXELS) ** 0.5, shapes[0])
        self._layers[2][...] = self.rng.normal(0.0, (1 / options.hidden) ** 0.5, shapes[2])

    def train_step(self) -> float:
        loss, gradient = self.gradient(*self.data.batch(self.rng, self._batch, self.scratch))
        self.update(gradient)
        return loss

    def gradient(self, x: Floats, y: Labels) -> tuple[float, Floats]:
        """Loss on a batch, and its slope for every parameter; the vector is reused."""
        _, _, out, out_bias = self._layers
        hidden = self._hidden(x)
        loss, error = digits.cross_entropy(hidden @ out + out_bias, y)
        back = self.scratch.floats("back", *hidden.shape)
        np.matmul(error, out.T, out=back)
        back *= np.greater(hidden, 0.0, out=self.scratch.bools("alive", *hidden.shape))
        into_slope, into_bias_slope, out_slope, out_bias_slope = self._slopes
        np.matmul(x.T, back, out=into_slope)
        np.sum(back, axis=0, out=into_bias_slope)
        np.matmul(hidden.T, error, out=out_slope)
        np.sum(error, axis=0, out=out_bias_slope)
        return loss, self._gradient

    def update(self, gradient: Floats) -> None:
        """One step of momentum down the slope."""
        self._velocity *= self._momentum
        move = self.scratch.floats("move", len(gradient))
        self._velocity -= np.multiply(gradient, self._rate, out=move)
        self._parameters += self._velocity

    def arrays(self) -> dict[str, Floats]:
        return {"parameters": self._parameters, "velocity": self._velocity}

    def accuracy(self) -> float:
        _, _, out, out_bias = self._layers
        scores = self._hidden(self.data.x_test) @ out + out_bias
        return float(np.mean(scores.argmax(axis=1) == self.data.y_test))

    def _hidden(self, x: Floats) -> Floats:
        into, into_bias, _, _ = self._layers
        hidden = self.scratch.floats("hidden", len(x), len(into_bias))
        np.matmul(x, into, out=hidden)
        hidden += into_bias
        return np.maximum(hidden, 0.0, out=hidden)


def arguments(description: str | None, *, steps: int) -> argparse.ArgumentParser:
    """The arguments of an Mlp and its training."""
    parser = loop.arguments(description, steps=steps, batch=256)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    return parser


def _views(vector: Floats, shapes: list[tuple[int, ...]]) -> list[Floats]:
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = np.split(vector, ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def main() -> None:
    options = arguments(__doc__, steps=1000).parse_args()
    loop.train(Mlp(options), options)


if __name__ == "__main__":
    main()
