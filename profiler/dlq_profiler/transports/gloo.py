"""gloo's collectives, decoded from the preamble that its TCP transport puts before each payload.

A preamble is six 64-bit words: bytes, opcode, slot, offset, length, remote offset. The highest byte
of the slot is the kind of the collective, the 32 bits from bit 24 on its number, unique in a group.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlq_profiler.records.requests import Requests
from dlq_profiler.transports.repeats import Iterations, steady_part

PREAMBLE = 48  # bytes
ALLREDUCE = 4
# Smaller collectives (barriers, a loss that is logged now and then) may break the repetition.
SMALL = 65_536


class Decoded(NamedTuple):
    """One iteration's all-reduces. Bytes exclude preambles."""

    seen: int  # whole iterations that were seen, all equal
    iterations: Iterations | None  # None: fewer than two of them
    sent_bytes: float  # of one iteration
    buckets: NDArray[np.int64]  # bytes of each, in the order of issue


class _Collectives(NamedTuple):
    sent: NDArray[np.int64]
    extent: NDArray[np.int64]
    address: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]


def is_gloo(requests: Requests) -> bool:
    """Whether most of the bytes have a preamble of gloo's before them."""
    total = int(requests["size"].sum())
    return total > 0 and 2 * int(requests["size"][requests["slot"] != 0].sum()) > total


def decode(requests: Requests) -> Decoded | None:
    """The all-reduces that repeat themselves; None if nothing does three times."""
    all_reduces = requests[
        (requests["slot"] >> np.uint64(56) == ALLREDUCE) & (requests["size"] > PREAMBLE)
    ]
    if not len(all_reduces):
        return None
    every = _collectives(all_reduces)
    for least in (0, SMALL):
        kept = _Collectives(*(column[every.extent >= least] for column in every))
        if (found := _iteration(kept)) is not None:
            return found
    return None


def _collectives(requests: Requests) -> _Collectives:
    """Each collective's bytes, extent in memory and time, in the order of their numbers."""
    by_slot = requests[np.lexsort((requests["address"], requests["slot"]))]
    slot = by_slot["slot"] >> np.uint64(24)
    first = np.flatnonzero(np.append(True, slot[1:] != slot[:-1]))
    payload = by_slot["size"] - PREAMBLE
    address = by_slot["address"].astype(np.int64)
    return _Collectives(
        np.add.reduceat(payload, first),
        np.maximum.reduceat(address + payload, first) - address[first],
        address[first],
        np.minimum.reduceat(by_slot["start_ns"], first),
        np.maximum.reduceat(by_slot["end_ns"], first),
    )


def _iteration(collectives: _Collectives) -> Decoded | None:
    steady = steady_part(
        collectives.extent, collectives.address, collectives.start_ns, collectives.end_ns
    )
    if steady is None:
        return None
    repeat, begin = steady
    one = slice(begin, begin + repeat.period)
    starts = collectives.start_ns[begin :: repeat.period]
    return Decoded(
        repeat.repeats,
        Iterations(starts) if len(starts) > 1 else None,
        float(collectives.sent[one].sum()),
        collectives.extent[one],
    )
