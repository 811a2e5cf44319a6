"""How fast a job runs on each of its sizes, from the steps that it made on some of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import log
from typing import NamedTuple


class SizePace(NamedTuple):
    """On so many GPUs of this type a step took it so many seconds."""

    gpus: int
    step_s: float
    gpu_type: str = ""


def with_pace(paces: Sequence[SizePace], heard: SizePace) -> tuple[SizePace, ...]:
    """The paces by size, rising, with another one; only those of its GPU type are kept."""
    kept = [it for it in paces if it.gpu_type == heard.gpu_type and it.gpus != heard.gpus]
    return tuple(sorted([*kept, heard]))


def speeds(sizes: Sequence[int], asked: int, paces: Sequence[SizePace]) -> tuple[float, ...]:
    """Its speed on each size, 1 on what it asked for; empty while fewer than two sizes have been
    measured.

    Measured speeds count as they are. In between and beyond, speed goes with a power of the number
    of GPUs. The power is that of the two measured sizes around it, or next to it. Outside the
    measured range the power is between 0 and 1. So no job is expected to gain more than a fair
    share, or to lose. `paces` rise by size. O(sizes log paces).
    """
    if len(paces) < 2:
        return ()
    own = _rate(paces, asked)
    return tuple([_rate(paces, size) / own for size in sizes])


def _rate(paces: Sequence[SizePace], gpus: int) -> float:
    at = bisect_left(paces, gpus, key=lambda pace: pace.gpus)
    if at < len(paces) and paces[at].gpus == gpus:
        return 1.0 / paces[at].step_s
    right = min(max(at, 1), len(paces) - 1)
    low, high = paces[right - 1], paces[right]
    power = log(low.step_s / high.step_s) / log(high.gpus / low.gpus)
    if not low.gpus < gpus < high.gpus:
        power = min(1.0, max(0.0, power))
    near = low if gpus < high.gpus else high
    return float((gpus / near.gpus) ** power / near.step_s)
