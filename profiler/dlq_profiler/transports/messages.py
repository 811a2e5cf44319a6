"""Parameter servers: each message is a tensor, each connection repeats its list of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlq_profiler.records.requests import Requests
from dlq_profiler.transports.repeats import Iterations, steady_part

HEADER = 64  # bytes; smaller messages are headers and acknowledgements
# Streams that do not repeat themselves may carry this share of the bytes, or the lists are not
# whole.
MOST_ASTRAY = 0.02


class Lists(NamedTuple):
    """One iteration's messages, connection by connection."""

    seen: int  # iterations that every list was seen in
    iterations: Iterations
    one: Requests  # the messages of one iteration
    coverage: float  # bytes of streams that repeat themselves, over all


class _List(NamedTuple):
    one: Requests
    starts_ns: NDArray[np.int64]
    repeats: int
    carried: int


def lists_of(requests: Requests) -> Lists | None:
    """The repeating lists on a process's connections; None unless nearly all repeats."""
    messages = requests[requests["size"] >= HEADER]
    if not len(messages):
        return None
    by_stream = messages[np.argsort(messages["conn"], kind="stable")]
    cuts = np.flatnonzero(np.diff(by_stream["conn"])) + 1
    found = [one for part in np.split(by_stream, cuts) if (one := _list_of(part)) is not None]
    carried = sum(one.carried for one in found)
    coverage = carried / int(messages["size"].sum())
    if coverage < 1.0 - MOST_ASTRAY:
        return None
    busiest = max(found, key=lambda one: one.carried)
    if len(busiest.starts_ns) < 2:
        return None
    # A list that was seen in other iterations than the busiest is not of the same training step.
    if any(abs(one.repeats - busiest.repeats) > 1 for one in found):
        return None
    return Lists(
        min(one.repeats for one in found),
        Iterations(busiest.starts_ns),
        np.concatenate([one.one for one in found]),
        coverage,
    )


def _list_of(messages: Requests) -> _List | None:
    steady = steady_part(
        messages["size"], messages["address"], messages["start_ns"], messages["end_ns"]
    )
    if steady is None:
        return None
    repeat, begin = steady
    return _List(
        messages[begin : begin + repeat.period],
        messages["start_ns"][begin :: repeat.period],
        repeat.repeats,
        int(messages["size"].sum()),
    )
