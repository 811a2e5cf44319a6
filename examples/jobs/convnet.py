#!/usr/bin/env python3
"""A small convolutional network: two 3x3 layers by im2col, one dense layer, momentum."""

import argparse

import one_thread  # noqa: F401 - before numpy

# isort: split
import numpy as np

import digits
import loop
from digits import Floats, Labels
from scratch import Scratch

KERNEL = 3


class ConvNet:
    """8x8x1 - conv - 6x6xC - conv - 4x4x2C - dense - 10, ReLU between the layers."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rng = np.random.default_rng(options.seed)
        self._data = digits.load()
        self._scratch = Scratch()
        self._batch, self._rate, self._momentum = options.batch, options.rate, options.momentum
        first, second = options.channels, 2 * options.channels
        side = digits.SIDE - 2 * (KERNEL - 1)
        self._layers = {
            "first": self._normal(KERNEL * KERNEL, first),
            "second": self._normal(KERNEL * KERNEL * first, second),
            "dense": self._normal(side * side * second, digits.CLASSES),
        }
        self._velocity = {name: np.zeros_like(layer) for name, layer in self._layers.items()}

    def train_step(self) -> float:
        loss, slopes = self.gradient(*self._data.batch(self.rng, self._batch, self._scratch))
        for name, slope in slopes.items():
            self._velocity[name] *= self._momentum
            slope *= self._rate
            self._velocity[name] -= slope
            self._layers[name] += self._velocity[name]
        return loss

    def arrays(self) -> dict[str, Floats]:
        moving = {f"{name}_velocity": value for name, value in self._velocity.items()}
        return self._layers | moving

    def accuracy(self) -> float:
        scores = self._forward(self._data.x_test)[-1]
        return float(np.mean(scores.argmax(axis=1) == self._data.y_test))

    def _normal(self, inputs: int, outputs: int) -> Floats:
        return self.rng.normal(0.0, (2 / inputs) ** 0.5, (inputs, outputs))

    def _forward(self, x: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """The input and output of each layer, up to the scores."""
        patches, one = self._layer("first", x.reshape(-1, digits.SIDE, digits.SIDE, 1))
        patches_two, two = self._layer("second", one)
        scores = two.reshape(len(x), -1) @ self._layers["dense"]
        return patches, one, patches_two, two, scores

    def _layer(self, name: str, images: Floats) -> tuple[Floats, Floats]:
        """The patches of the images, and the layer's output for them."""
        layer, floats = self._layers[name], self._scratch.floats
        count, height, width, channels = images.shape
        size = count, height - KERNEL + 1, width - KERNEL + 1
        patches = im2col(images, floats(f"{name}_seen", *size, KERNEL * KERNEL * channels))
        given = np.matmul(patches, layer, out=floats(f"{name}_given", *size, layer.shape[1]))
        return patches, np.maximum(given, 0.0, out=given)

    def gradient(self, x: Floats, y: Labels) -> tuple[float, dict[str, Floats]]:
        patches, one, patches_two, two, scores = self._forward(x)
        loss, error = digits.cross_entropy(scores, y)
        floats, bools = self._scratch.floats, self._scratch.bools
        flat = two.reshape(len(x), -1)
        error_two = np.matmul(
            error, self._layers["dense"].T, out=floats("error_two", *flat.shape)
        ).reshape(two.shape)
        error_two *= np.greater(two, 0.0, out=bools("two_alive", *two.shape))
        spread = floats("spread", *patches_two.shape)
        np.matmul(error_two, self._layers["second"].T, out=spread)
        error_one = col2im(spread, floats("error_one", *one.shape))
        error_one *= np.greater(one, 0.0, out=bools("one_alive", *one.shape))
        return loss, {
            "first": np.tensordot(patches, error_one, axes=((0, 1, 2), (0, 1, 2))),
            "second": np.tensordot(patches_two, error_two, axes=((0, 1, 2), (0, 1, 2))),
            "dense": flat.T @ error,
        }


def im2col(images: Floats, out: Floats) -> Floats:
    """Every 3x3 patch as a row: (n, h, w, c) becomes (n, h-2, w-2, 9c), written to `out`."""
    return np.concatenate([images[window] for window in _windows(images.shape)], axis=3, out=out)


def col2im(patches: Floats, images: Floats) -> Floats:
    """The transpose of `im2col`: each patch added back to its place."""
    images[...] = 0.0
    parts = np.split(patches, KERNEL * KERNEL, axis=3)
    for window, part in zip(_windows(images.shape), parts, strict=True):
        images[window] += part
    return images


def _windows(shape: tuple[int, ...]) -> list[tuple[slice, slice, slice]]:
    height, width = shape[1] - KERNEL + 1, shape[2] - KERNEL + 1
    return [
        (slice(None), slice(down, down + height), slice(right, right + width))
        for down in range(KERNEL)
        for right in range(KERNEL)
    ]


def main() -> None:
    parser = loop.arguments(__doc__, steps=600, batch=64)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--momentum", type=float, default=0.9)
    options = parser.parse_args()
    loop.train(ConvNet(options), options)


if __name__ == "__main__":
    main()
