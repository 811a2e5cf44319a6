"""The model under an all-reduce: its size, checked, and between which bounds its largest tensor
lies.

Data-parallel frameworks send tensors in buckets. A bucket is closed when it REACHES its cap. A
bucket above its cap was closed by a tensor of more than the difference. The largest tensor lies in
(largest bucket - cap, largest bucket]. Its share of the model is an interval, never a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlq_profiler.results import Interval, Method, ProcessProfile, TrafficReason

# PyTorch's DistributedDataParallel; it has no variable of the environment that changes them.
BUCKET_CAP = 26_214_400  # bytes
FIRST_BUCKET_CAP = 1_048_576
# Two ways to the model's size may differ by this share, or by this number of bytes for each rank
# and bucket. A rank sends whole elements and segments.
MOST_SELF_CHECK_ERROR = 0.001
ROUNDING = 16


class Sizes(NamedTuple):
    """The model's sizes; `reason`: the reason why none are known."""

    method: Method
    reason: TrafficReason | None = None
    model_bytes: float | None = None
    largest: Interval | None = None
    skew: Interval | None = None
    buckets: tuple[int, ...] = ()
    self_check_error: float | None = None


def sizes_of(talkers: Sequence[ProcessProfile], ranks: int) -> Sizes:
    """The model of processes that send to each other in a ring of this size."""
    method = max(talkers, key=lambda process: process.sent_bytes).method
    if ranks < 2:
        return Sizes(method, TrafficReason.RANKS_UNKNOWN)
    if not all(process.buckets or process.buffers for process in talkers):
        return Sizes(method, TrafficReason.NOT_TENSORS)
    error = _self_check_error(talkers, ranks)
    if error > MOST_SELF_CHECK_ERROR:
        told = method in (Method.ADDRESSES, Method.SLOTS, Method.NCCL)
        why = TrafficReason.SELF_CHECK if told else TrafficReason.NOT_TENSORS
        return Sizes(method, why, self_check_error=error)
    best = max(talkers, key=lambda process: (bool(process.buckets), process.coverage))
    buckets = best.buckets or best.buffers
    model = float(sum(buckets))
    largest = largest_tensor(buckets, ordered=bool(best.buckets))
    return Sizes(method, None, model, largest, _share(largest, model), buckets, error)


def _self_check_error(talkers: Sequence[ProcessProfile], ranks: int) -> float:
    """The largest relative difference between ways to the model's size, over all ranks.

    A rank of a ring of n sends 2 (n - 1) / n of the model, and its buffers hold all of it. Its
    buckets, by the protocol, are those buffers. The model is the same on every rank.
    """
    ring = ranks / (2 * (ranks - 1))
    sums = [
        sum(parts) for process in talkers for parts in (process.buckets, process.buffers) if parts
    ]
    rounding = ROUNDING * ranks * max(len(p.buckets) + len(p.buffers) for p in talkers)
    sent = [process.sent_bytes * ring for process in talkers]
    middle = sorted(sums)[len(sums) // 2]
    apart = max(abs(size - middle) for size in (*sums, *sent))
    return max(0.0, apart - rounding) / middle


def largest_tensor(buckets: Sequence[int], *, ordered: bool) -> Interval:
    """Bytes between which the largest tensor lies. `ordered`: the first one is the first issued.

    A cap smaller than the default shows: all buckets but the first and the last have reached it.
    """
    whole = buckets[1:-1] if ordered else ()
    cap = min([BUCKET_CAP, *whole])
    lower = max(buckets) - cap
    if ordered:
        lower = max(lower, buckets[0] - FIRST_BUCKET_CAP if len(buckets) > 1 else 0)
    return Interval(float(max(0, lower)), float(max(buckets)))


def exactly(largest: int, model: int) -> Sizes:
    """The same where the tensors themselves are known."""
    bytes_ = Interval(float(largest), float(largest))
    return Sizes(Method.EXACT, None, float(model), bytes_, _share(bytes_, float(model)))


def _share(largest: Interval, model: float) -> Interval:
    return Interval(largest.lower / model, largest.upper / model)
