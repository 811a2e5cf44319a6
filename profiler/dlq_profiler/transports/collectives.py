"""NCCL's calls: one record for each, with its true size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlq_profiler.records.layout import COLLECTIVES, Op, RecordFlag
from dlq_profiler.records.requests import REQUEST, Records, Requests
from dlq_profiler.transports.repeats import Iterations, mixed, steady_part


class Calls(NamedTuple):
    seen: int  # iterations
    iterations: Iterations
    sent_bytes: float  # that one rank sends, by the ring algorithms
    buckets: NDArray[np.int64]  # bytes of each all-reduce, in the order of issue
    reduced_share: float  # of `sent_bytes`, that all-reduces send
    sends: Requests  # every call, its size in bytes that one rank sends


def collectives_of(records: Records) -> Records:
    """The collectives, without those captured by a CUDA graph (one record, many replays)."""
    found: Records = records[
        np.isin(records["op"], COLLECTIVES) & (records["flags"] & RecordFlag.CAPTURED == 0)
    ]
    return found


def decode(calls: Records, ranks_of: NDArray[np.int64]) -> Calls | None:
    """The calls that repeat themselves; None if nothing does three times.

    `ranks_of[conn - 1]`: ranks of each communicator.
    """
    calls = calls[calls["conn"] > 0]
    if not len(calls):
        return None
    ranks = np.maximum(ranks_of[calls["conn"].astype(np.int64) - 1], 1)
    sends = np.zeros(len(calls), REQUEST)
    sends["start_ns"] = calls["ts_ns"]
    sends["end_ns"] = calls["ts_ns"] + calls["duration_ns"]
    sends["size"] = _sent(calls["op"], calls["bytes"], ranks)
    for field in ("conn", "op", "address"):
        sends[field] = calls[field]
    kinds = mixed(calls["bytes"], calls["op"], calls["conn"])
    steady = steady_part(kinds, calls["address"], sends["start_ns"], sends["end_ns"])
    if steady is None:
        return None
    repeat, begin = steady
    starts = sends["start_ns"][begin :: repeat.period]
    if len(starts) < 2:
        return None
    one = slice(begin, begin + repeat.period)
    reduced = calls["op"][one] == Op.ALL_REDUCE
    sent = sends["size"][one]
    total = float(sent.sum())
    return Calls(
        repeat.repeats,
        Iterations(starts),
        total,
        calls["bytes"][one][reduced],
        float(sent[reduced].sum()) / total if total else 0.0,
        sends,
    )


def _sent(
    op: NDArray[np.uint16], size: NDArray[np.int64], ranks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Bytes that one rank sends: by ring algorithms, or the message from one to one."""
    others = (ranks - 1).astype(float)
    factor = np.ones(len(op))
    factor = np.where(op == Op.ALL_REDUCE, 2.0 * others / ranks, factor)
    # Their counts are one rank's part; a ring passes that on n - 1 times.
    each = (op == Op.ALL_GATHER) | (op == Op.REDUCE_SCATTER) | (op == Op.ALL_TO_ALL)
    factor = np.where(each, others, factor)
    factor = np.where(op == Op.P2P_RECV, 0.0, factor)
    return np.rint(size * factor).astype(np.int64)
