"""The requests that a program made, put together from the calls that it took."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from dlq_profiler.records.layout import RecordFlag

# One request: a call, and the calls that continued it.
REQUEST = np.dtype(
    [
        ("start_ns", "<i8"),  # CLOCK_MONOTONIC of the host
        ("end_ns", "<i8"),
        ("address", "<u8"),
        ("slot", "<u8"),  # of gloo's preamble; 0: it has none
        ("size", "<i8"),  # bytes asked for at first
        ("done", "<i8"),  # bytes that were taken
        ("conn", "<u4"),
        ("op", "<u2"),
    ]
)

Records = NDArray[np.void]
Requests = NDArray[np.void]
_NOT_COUNTED = RecordFlag.PEEK | RecordFlag.FAILED_POST


def requests_of(records: Records, ops: Collection[int]) -> Requests:
    """The requests among the records of these ops, by their start.

    A call may take less than it was asked for, EAGAIN included. The next call on its connection
    that asks for exactly the rest continues it. The first has the size and the address. Records
    without a connection (its table was full) cannot be told apart, and are left out.
    """
    chosen = records[
        np.isin(records["op"], list(ops))
        & (records["flags"] & _NOT_COUNTED == 0)
        & (records["conn"] > 0)
    ]
    chosen = chosen[np.lexsort((chosen["ts_ns"], chosen["conn"]))]
    if not len(chosen):
        return np.empty(0, REQUEST)
    done = np.maximum(chosen["result"], 0)
    first = _firsts(chosen, chosen["bytes"] - done)
    last = np.append(first[1:], len(chosen)) - 1
    found = np.empty(len(first), REQUEST)
    for field in ("address", "conn", "op"):
        found[field] = chosen[field][first]
    gloo = chosen["flags"][first] & RecordFlag.GLOO != 0
    found["slot"] = np.where(gloo, chosen["aux"][first], 0)
    found["size"] = chosen["bytes"][first]
    found["done"] = np.add.reduceat(done, first)
    found["start_ns"] = chosen["ts_ns"][first]
    found["end_ns"] = chosen["ts_ns"][last] + chosen["duration_ns"][last]
    return found[np.argsort(found["start_ns"], kind="stable")]


def _firsts(chosen: Records, left: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places where requests begin among the calls, which are sorted by connection and time."""
    goes_on = np.zeros(len(chosen), bool)
    goes_on[1:] = (
        (chosen["conn"][1:] == chosen["conn"][:-1])
        & (left[:-1] > 0)
        & (chosen["bytes"][1:] == left[:-1])
    )
    return np.flatnonzero(~goes_on)
