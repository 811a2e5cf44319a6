"""The tensors of well-known models: bytes of each parameter at 4 bytes an element, in forward
order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

FLOAT = 4
LEAST = 16  # elements; the least that any of the models has


def conv(
    inputs: int, outputs: int, *kernel: int, bias: bool = False, norm: bool = True
) -> list[int]:
    """A convolution; with `norm` followed by a batch normalisation."""
    height, width = (*kernel, *kernel)[:2]
    sizes = [inputs * outputs * height * width]
    return sizes + [outputs] * (bias + 2 * norm)


def dense(inputs: int, outputs: int) -> list[int]:
    return [inputs * outputs, outputs]


def vgg16() -> list[int]:
    widths = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    sizes: list[int] = []
    for inputs, outputs in pairwise(widths):
        sizes += conv(inputs, outputs, 3, bias=True, norm=False)
    return sizes + dense(25088, 4096) + dense(4096, 4096) + dense(4096, 1000)


def alexnet() -> list[int]:
    sizes: list[int] = []
    for inputs, outputs, kernel in (
        (3, 64, 11), (64, 192, 5), (192, 384, 3), (384, 256, 3), (256, 256, 3),
    ):  # fmt: skip
        sizes += conv(inputs, outputs, kernel, bias=True, norm=False)
    return sizes + dense(9216, 4096) + dense(4096, 4096) + dense(4096, 1000)


def resnet(*blocks: int) -> list[int]:
    """With bottlenecks: (3, 4, 6, 3) is ResNet50, (3, 8, 36, 3) is ResNet152."""
    sizes = conv(3, 64, 7)
    inputs = 64
    for stage, number in enumerate(blocks):
        width = 64 << stage
        for block in range(number):
            sizes += conv(inputs, width, 1) + conv(width, width, 3) + conv(width, 4 * width, 1)
            if block == 0:
                sizes += conv(inputs, 4 * width, 1)
            inputs = 4 * width
    return sizes + dense(2048, 1000)


def googlenet() -> list[int]:
    sizes = conv(3, 64, 7) + conv(64, 64, 1) + conv(64, 192, 3)
    for inputs, a, b, c, d, e, f in (
        (192, 64, 96, 128, 16, 32, 32), (256, 128, 128, 192, 32, 96, 64),
        (480, 192, 96, 208, 16, 48, 64), (512, 160, 112, 224, 24, 64, 64),
        (512, 128, 128, 256, 24, 64, 64), (512, 112, 144, 288, 32, 64, 64),
        (528, 256, 160, 320, 32, 128, 128), (832, 256, 160, 320, 32, 128, 128),
        (832, 384, 192, 384, 48, 128, 128),
    ):  # fmt: skip
        sizes += conv(inputs, a, 1) + conv(inputs, b, 1) + conv(b, c, 3)
        sizes += conv(inputs, d, 1) + conv(d, e, 3) + conv(inputs, f, 1)
    return sizes + dense(1024, 1000)


def inception3() -> list[int]:
    sizes = conv(3, 32, 3) + conv(32, 32, 3) + conv(32, 64, 3) + conv(64, 80, 1) + conv(80, 192, 3)
    for inputs, pool in ((192, 32), (256, 64), (288, 64)):
        sizes += conv(inputs, 64, 1) + conv(inputs, 48, 1) + conv(48, 64, 5)
        sizes += conv(inputs, 64, 1) + conv(64, 96, 3) + conv(96, 96, 3) + conv(inputs, pool, 1)
    sizes += conv(288, 384, 3) + conv(288, 64, 1) + conv(64, 96, 3) + conv(96, 96, 3)
    for width in (128, 160, 160, 192):
        sizes += conv(768, 192, 1) + conv(768, width, 1) + conv(width, width, 1, 7)
        sizes += conv(width, 192, 7, 1) + conv(768, width, 1)
        for kernel in ((7, 1), (1, 7), (7, 1)):
            sizes += conv(width, width, *kernel)
        sizes += conv(width, 192, 1, 7) + conv(768, 192, 1)
    sizes += conv(768, 192, 1) + conv(192, 320, 3)
    sizes += conv(768, 192, 1) + conv(192, 192, 1, 7) + conv(192, 192, 7, 1) + conv(192, 192, 3)
    for inputs in (1280, 2048):
        sizes += conv(inputs, 320, 1) + conv(inputs, 384, 1) + 2 * conv(384, 384, 1, 3)
        sizes += conv(inputs, 448, 1) + conv(448, 384, 3) + 2 * conv(384, 384, 1, 3)
        sizes += conv(inputs, 192, 1)
    return sizes + dense(2048, 1000)


def gpt(width: int = 512, layers: int = 6, words: int = 32_000, places: int = 64) -> list[int]:
    """A decoder whose output shares the embedding's weights."""
    sizes = [words * width, places * width]
    for _ in range(layers):
        sizes += [width, width, *dense(width, 3 * width), *dense(width, width)]
        sizes += [width, width, *dense(width, 4 * width), *dense(4 * width, width)]
    return [*sizes, width, width]


MODELS = {
    "vgg16": vgg16(),
    "alexnet": alexnet(),
    "gpt": gpt(),
    "googlenet": googlenet(),
    "resnet50": resnet(3, 4, 6, 3),
    "inception3": inception3(),
    "resnet152": resnet(3, 8, 36, 3),
}


def tensors(model: str, *, shrunk: int = 1) -> list[int]:
    """Bytes of each parameter; `shrunk`: divided by so much, but never below what counts as a
    message.
    """
    return [max(LEAST, elements // shrunk) * FLOAT for elements in MODELS[model]]


def buckets(sizes: list[int], *, first_cap: int = 1 << 20, cap: int = 25 << 20) -> Iterator[int]:
    """What DistributedDataParallel makes of them: in the order of the backward pass, closed at the
    cap.
    """
    filled, limit = 0, first_cap
    for size in reversed(sizes):
        filled += size
        if filled >= limit:
            yield filled
            filled, limit = 0, cap
    if filled:
        yield filled
