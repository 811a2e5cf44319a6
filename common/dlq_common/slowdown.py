"""How much slower a spread job gets, foretold from its bytes, its computing and the link.

One iteration computes for `compute_s` and sends its bytes between nodes for `comm_s`: rho = comm_s
/ compute_s. If both overlap perfectly it takes max(1, rho) as long as computing alone, without any
overlap 1 + rho. Between them lies (1 + rho^g)^(1/g), the form of goodput schedulers. Its g >= 1
says how well this cluster's jobs overlap, and is fitted to measurements
(`dlq_master.policy.sensitivity.overlap_fit`). The place stage and the profiler use these formulas.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

# A spread job computes and communicates with the overlap that fits eleven measured jobs best. The
# mean error is 6.3 %, each between perfect overlap (inf) and none (1).
OVERLAP = 1.45
# rho of a job with a known skew only, as a multiple of it: least squares through 0 over AlexNet,
# VGG16, ResNet50, ResNet152 and Inception3. They ran on P100s with 100 Gbit/s between the nodes
# (skew .618 .743 .092 .039 .086, rho .250 .233 .061 .060 .037).
SKEW_RHO = 0.356
LEAST_COMPUTING = 0.01  # part of an iteration
# A job with more skew is kept together. Table 6 of Tiresias: the largest tensor of the four models
# that suffer (Figure 3) is at least 61.0 % of the model (AlexNet). That of the others is at most
# 14.6 % (GoogleNet). Half-way between them is as far from both as can be.
PACKLIMIT = 0.378


class Bounds(NamedTuple):
    """A slowdown lies between perfect overlap and none."""

    low: float
    high: float


def rho_of(bytes_per_iteration: float, compute_s: float, bytes_per_s: float) -> float:
    """rho of a job whose busiest process sends so many bytes per iteration over a link of this
    rate.

    Raises ValueError unless the computing takes time, the link has a rate, and the bytes are not
    negative.
    """
    for name, value in (("compute_s", compute_s), ("bytes_per_s", bytes_per_s)):
        if not 0.0 < value < inf:
            raise ValueError(f"{name} must be a positive number, not {value}")
    if not 0.0 <= bytes_per_iteration < inf:
        raise ValueError(f"bytes_per_iteration must be 0 or more, not {bytes_per_iteration}")
    return bytes_per_iteration / bytes_per_s / compute_s


def rho_of_spread(
    bytes_per_iteration: float, period_s: float, bytes_per_s: float, overlap: float = OVERLAP
) -> float:
    """rho of a job that was spread over this link while an iteration took `period_s`.

    The form above, solved for the computing: compute_s = (period_s^g - comm_s^g)^(1/g). A job that
    needs all of the period, or more, to send has a link faster than the stated one. It computes for
    no longer than `LEAST_COMPUTING` of the period. Raises ValueError as `rho_of` does.
    """
    rho = rho_of(bytes_per_iteration, period_s, bytes_per_s)  # over the period, so far
    left = 1.0 - min(rho, 1.0) ** overlap
    return rho / max(LEAST_COMPUTING, float(left ** (1.0 / overlap)))


def bounds(rho: float) -> Bounds:
    """The bounds of the slowdown for every overlap."""
    return Bounds(max(1.0, rho), 1.0 + rho)


def slowdown(rho: float, overlap: float) -> float:
    """(1 + rho^g)^(1/g), g from 1 (no overlap) to inf (perfect)."""
    low, high = sorted((1.0, rho))  # so that no power overflows
    if overlap == inf:
        return high
    return float(high * (1.0 + (low / high) ** overlap) ** (1.0 / overlap))


def rho_at(tolerated: float, overlap: float) -> float:
    """The rho at which the slowdown is exactly so much: the inverse of `slowdown`."""
    if overlap == inf:
        return tolerated
    return float((tolerated**overlap - 1.0) ** (1.0 / overlap))
