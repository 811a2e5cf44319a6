"""Numbers of GPUs on which a job runs, as people write them: `2:8` or `2,4,8`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

MOST_SIZES = 1024
_RANGE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})(?::([0-9]{1,9}))?", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


class SizeRange(NamedTuple):
    """The sizes from `least` up to `most`; `step` 0: one by one, or by whole nodes where these are
    said.
    """

    least: int
    most: int
    step: int = 0


def parse_range(text: str) -> SizeRange:
    """`2:8`, or `2:8:2` for every second. ValueError names the fault."""
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text[:64]!r} is not a range of GPUs: write 2:8, or 2:8:2 for 2, 4, 6, 8"
        )
    least, most, step = (int(part or 0) for part in found.groups())
    if found[3] is not None and step < 1:
        raise ValueError("a step of 0 leads nowhere")
    if least < 1:
        raise ValueError("a job needs at least one GPU")
    if least > most:
        raise ValueError(f"it is upside down: write {most}:{least}")
    return SizeRange(least, most, step)


def expanded(asked: SizeRange, each: int | None) -> tuple[int, ...]:
    """All sizes of the range; `each`: GPUs of every node, if the number of nodes changes."""
    least, most, step = asked
    step = step or each or 1
    if each is not None and (least % each or step % each):
        raise ValueError(f"with {each} GPUs on every node its sizes are multiples of {each}")
    if (most - least) // step >= MOST_SIZES:
        raise ValueError(f"these are more than {MOST_SIZES} sizes: give it a step, as in 8:4096:8")
    if beyond := (most - least) % step:
        last = most - beyond
        raise ValueError(f"steps of {step} lead to {last} or {last + step}, not to {most}")
    return checked(tuple(range(least, most + 1, step)))


def parse_sizes(words: Sequence[object]) -> tuple[int, ...]:
    """`2`, `4` and `8`, as text or as numbers."""
    texts = [str(word).strip() for word in words if not isinstance(word, bool)]
    for text in texts:
        if not _NUMBER.fullmatch(text):
            raise ValueError(f"{text[:64]!r} is not a number of GPUs: write 2,4,8")
    return checked(tuple(map(int, texts)))


def checked(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The same, if a job could have them."""
    if len(sizes) < 2:
        raise ValueError("one size is no choice: write two or more, or none of this")
    if len(sizes) > MOST_SIZES:
        raise ValueError(f"these are more than {MOST_SIZES} sizes")
    if sizes[0] < 1:
        raise ValueError("a job needs at least one GPU")
    if any(a >= b for a, b in pairwise(sizes)):
        raise ValueError("sizes must rise, such as 2,4,8")
    return sizes


def format_sizes(sizes: Sequence[int]) -> str:
    """`2:8`, `2:8:2` or `2,4,8`; empty for none."""
    if len(sizes) < 3:
        return ",".join(map(str, sizes))
    step = sizes[1] - sizes[0]
    if any(b - a != step for a, b in pairwise(sizes)):
        return ",".join(map(str, sizes))
    return f"{sizes[0]}:{sizes[-1]}" + (f":{step}" if step > 1 else "")
