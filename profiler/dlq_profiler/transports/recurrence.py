"""Iterations by the addresses that recur: needs no protocol, and no order of the messages.

Communication buffers keep their place. In steady state the same bytes at the same address therefore
go out on the same connection once or twice in every iteration. Twice: a ring all-reduce of three or
more sends most chunks in both its halves. Such a request is a key. Between two occurrences of a key
that goes out once, every other key goes out once or twice, wherever the recording began and ended.
Each likely key is therefore tried as the mark of iterations, and the one that explains most bytes
is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlq_profiler.records.requests import Requests
from dlq_profiler.transports.repeats import Iterations, mixed

# A warm-up iteration and three more; with fewer, chance recurrences win.
LEAST_SEEN = 3
# Streams that carry less than this share of the busiest are no part of the training's own traffic:
# rendezvous, logs.
LEAST_OF_BUSIEST = 0.01
LONGEST_HEADER = 256  # bytes that a protocol puts before the payload in the same request
LEAST_EXPLAINED = 0.5  # of the bytes; a key that explains less has marked something else
ASTRAY = 0.1  # of an iteration; a pause that is farther from its usual place is another one
LEAST_MARKED = 0.2  # of all bytes: handshakes recur before the training begins
TRIED_COUNTS = 8  # numbers of occurrences from which marks are tried
# Of marks that explain as much as the best, but for this, the one that was seen most is taken.
AS_GOOD = 0.001


class Recurrence(NamedTuple):
    """The recurring requests. Bytes exclude headers."""

    seen: int  # iterations that the mark was seen in
    iterations: Iterations
    sent_bytes: float  # of one iteration
    buffers: NDArray[np.int64]  # sizes of the address ranges, in the order of their use
    coverage: float  # the part of these streams' bytes meanwhile that it explains
    header: int  # bytes that precede each payload


class _Keys(NamedTuple):
    """Requests by kind: `of` numbers the key of each; how often each key was seen, and its size."""

    of: NDArray[np.int64]
    seen: NDArray[np.int64]
    size: NDArray[np.int64]


class _Marked(NamedTuple):
    """The iterations that a key marks: the count of each key in one, and the share they explain."""

    marks_ns: NDArray[np.int64]
    times: NDArray[np.int64]  # 0, 1 or 2
    explained: float


def recurring(requests: Requests) -> Recurrence | None:
    """The pattern of one process' requests; None if nothing recurs often enough."""
    heavy = _of_heavy_streams(requests)
    if not len(heavy):
        return None
    keys = _keys(heavy)
    tried = [
        marked
        for key in _likely_marks(heavy, keys)
        if (marked := _marked(heavy, keys, key)) is not None
    ]
    if not tried:
        return None
    most = max(marked.explained for marked in tried)
    if most < LEAST_EXPLAINED:
        return None
    best = max(
        (marked for marked in tried if marked.explained >= most - AS_GOOD),
        key=lambda marked: (len(marked.marks_ns), -int(marked.marks_ns[0])),
    )
    return _pattern(heavy, keys, best)


def ranges(requests: Requests) -> tuple[NDArray[np.int64], int]:
    """Sizes of the address ranges that requests cover, and the bytes before each payload.

    No tolerance: buffers lie so near to each other that any would join them.
    """
    by_place = requests[np.lexsort((requests["size"], requests["address"]))]
    address = by_place["address"].astype(np.int64)
    header = _header(address, by_place["size"])
    ends = np.maximum.accumulate(address + by_place["size"] - header)
    first = np.flatnonzero(np.append(True, address[1:] > ends[:-1]))
    last = np.append(first[1:], len(address)) - 1
    sizes = ends[last] - address[first]
    order = np.argsort(np.minimum.reduceat(by_place["start_ns"], first), kind="stable")
    return sizes[order], header


def _of_heavy_streams(requests: Requests) -> Requests:
    if not len(requests):
        return requests
    _, index = np.unique(requests["conn"], return_inverse=True)
    carried = np.bincount(index, weights=requests["size"])
    heavy: Requests = requests[(carried >= LEAST_OF_BUSIEST * carried.max())[index]]
    return heavy


def _keys(requests: Requests) -> _Keys:
    _, first, of, count = np.unique(
        mixed(requests["conn"], requests["address"], requests["size"]),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    return _Keys(of, count, requests["size"][first])


def _likely_marks(requests: Requests, keys: _Keys) -> Iterator[int]:
    """For each of the counts that carry most bytes: the key that most often comes after a pause,
    and its first and last occurrence.
    """
    carried = np.bincount(keys.seen, weights=keys.seen * keys.size)
    carried[:LEAST_SEEN] = 0
    before = np.append(0, np.maximum.accumulate(requests["end_ns"])[:-1])
    pause = np.maximum(requests["start_ns"] - before, 0).astype(float)
    pause[0] = 0.0
    pauses = np.bincount(keys.of, weights=pause, minlength=len(keys.seen)) / keys.seen
    for count in np.argsort(-carried, kind="stable")[:TRIED_COUNTS]:
        if not carried[count]:
            return
        of_count = keys.seen == count
        yield int(np.argmax(np.where(of_count, pauses, -1.0)))
        among = keys.of[of_count[keys.of]]
        yield from {int(among[0]), int(among[-1])}


def _marked(requests: Requests, keys: _Keys, key: int) -> _Marked | None:
    marks = requests["start_ns"][keys.of == key]
    whole = len(marks) - 1
    inside = _between(requests, marks)
    found = np.bincount(keys.of[inside], minlength=len(keys.seen))
    # A request near a mark may come before it in one iteration, and after it in the next. In fewer
    # iterations a request half as frequent as the mark would pass for an equally frequent one.
    slack = 1 if whole > 4 else 0
    times = np.zeros(len(found), np.int64)
    for often in (1, 2):
        times[np.abs(found - often * whole) <= slack] = often
    everything = float(requests["size"][inside].sum())
    if everything < LEAST_MARKED * float(requests["size"].sum()):
        return None
    explained = float((times * keys.size).sum()) * whole / everything
    return _Marked(marks, times, min(explained, 1.0)) if explained else None


def _between(requests: Requests, marks: NDArray[np.int64]) -> NDArray[np.bool_]:
    at = requests["start_ns"]
    inside: NDArray[np.bool_] = (at >= marks[0]) & (at < marks[-1])
    return inside


def _pattern(requests: Requests, keys: _Keys, marked: _Marked) -> Recurrence:
    steady = requests[_between(requests, marked.marks_ns) & (marked.times[keys.of] > 0)]
    sizes, header = ranges(steady)
    sent = float((marked.times * np.maximum(keys.size - header, 0)).sum())
    return Recurrence(
        len(marked.marks_ns),
        Iterations(_begins(requests, keys, marked)),
        sent,
        sizes,
        marked.explained,
        header,
    )


def _begins(requests: Requests, keys: _Keys, marked: _Marked) -> NDArray[np.int64]:
    """When the iterations of these marks began: each after the longest pause before its mark.

    Where that pause is not where it usually is, the usual distance to the mark counts.
    """
    marks = marked.marks_ns
    period = float(np.median(np.diff(marks)))
    at, ends = requests["start_ns"], np.maximum.accumulate(requests["end_ns"])
    pauses = np.append(0, at[1:] - ends[:-1])
    counts = (at > marks[0] - period) & (at <= marks[-1]) & (marked.times[keys.of] > 0)
    at, pauses = at[counts], pauses[counts]
    before = np.searchsorted(marks, at, side="left")  # the mark that each comes before, or is
    by_pause = np.lexsort((pauses, before))
    longest = by_pause[np.flatnonzero(np.append(np.diff(before[by_pause]) > 0, True))]
    shifts = marks - at[longest]
    usual = int(np.median(shifts))
    found: NDArray[np.int64] = marks - np.where(
        np.abs(shifts - usual) <= ASTRAY * period, shifts, usual
    )
    return found


def _header(address: NDArray[np.int64], sizes: NDArray[np.int64]) -> int:
    """The usual overlap of requests into their neighbour: the header before each payload."""
    steps = np.diff(address)
    overlaps = (sizes[:-1] - steps)[steps > 0]
    overlaps = overlaps[(overlaps >= 0) & (overlaps <= LONGEST_HEADER)]
    return int(np.argmax(np.bincount(overlaps))) if len(overlaps) else 0
